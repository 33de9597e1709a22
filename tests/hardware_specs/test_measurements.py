"""Published rows: none is faster than physics, the sizes of a log are the ledger's, and a bad row is refused."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import catalogue, hardware, measurements, predict, roofline
from engine.errors import LabError
from engine.ledger import ENGINE, LESSON, Formats, decode
from engine.measurements import Size, Speed, judge, published

SPEEDS = published().speeds
SIZES = published().sizes
EVERY_SPEED = pytest.mark.parametrize(
    "row", SPEEDS, ids=lambda r: f"{r.published_as or r.model}-{r.weights}-{r.hardware}"
)

GOOD: dict[str, Any] = {
    "model": "Qwen/Qwen3-4B", "hardware": "rtx-4090", "weights": "bf16", "context": 1024, "tokens_per_s": 97.0,
    "condition": "batch 1", "source": "a page: https://example.org",
}  # fmt: skip
GOOD_SIZE: dict[str, Any] = {
    "model": "Qwen/Qwen3-4B", "of": "kv", "positions": 4096, "mib": 576, "condition": "a log", "source": "a page",
}  # fmt: skip


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rows.toml"
    path.write_text(text)
    return path


def _row(table: str, fields: dict[str, Any]) -> str:
    lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in fields.items()]
    return "\n".join([f"[[{table}]]", *lines])


def test_the_rows_are_those_known() -> None:
    assert len(SPEEDS) >= 13
    assert len(SIZES) >= 2
    assert len({(row.model, row.weights, row.hardware, row.condition) for row in SPEEDS}) == len(SPEEDS)


@EVERY_SPEED
def test_no_published_speed_beats_its_floor(row: Speed) -> None:
    judged = judge(row)
    assert judged.floor_s <= judged.time_s
    # And none is so slow that the row, or the model it is counted as, must be another one.
    assert 0.3 < judged.share_of_roof <= 1.0
    assert judged.bound == "memory"


@EVERY_SPEED
def test_the_lesson_convention_does_not_put_the_floor_above_a_row_either(row: Speed) -> None:
    device = hardware.load(row.hardware)
    roof, _ = predict.roof_of(device, row.formats)
    for convention in (LESSON, ENGINE):
        step = decode(catalogue.load(row.model), row.context + 1, formats=row.formats, convention=convention)
        assert roofline.floor_ns(step, roof) * 1e-9 <= judge(row).time_s


@EVERY_SPEED
def test_a_row_says_where_it_can_be_read(row: Speed) -> None:
    assert "https://" in row.source
    assert row.condition


def test_the_time_of_a_row_is_that_of_one_step() -> None:
    assert Speed(**GOOD).time_s == pytest.approx(1 / 97)
    assert Speed(**{**GOOD, "batch": 8}).time_s == pytest.approx(8 / 97)
    assert Speed(**{**GOOD, "tokens_per_s": None, "ms_per_token": 10.31}).time_s == pytest.approx(0.01031)


def test_int8_rows_count_their_scales_and_their_output_matrix() -> None:
    """gpt-fast keeps int8 weights with one 16-bit scale per output channel, the output matrix included."""
    (row,) = (r for r in SPEEDS if r.model == "meta-llama/Llama-2-70b-hf")
    step = decode(catalogue.load(row.model), row.context + 1, formats=row.formats)
    (head,) = (op for op in step.ops if op.name == "lm_head")
    assert head.bytes.weights == 32_000 * (8_192 + 2)
    half = decode(catalogue.load(row.model), row.context + 1, formats=Formats("bf16"))
    assert 0.5 < step.bytes.weights / half.bytes.weights < 0.501


def test_a_half_as_fast_memory_would_be_beaten_by_several_rows() -> None:
    """The check can fail: were bandwidths half of what the files say, most rows would beat their floor."""
    beaten = 0
    for row in SPEEDS:
        device = hardware.load(row.hardware)
        roof, _ = predict.roof_of(device, row.formats)
        slow = dataclasses.replace(roof, bytes_per_s=roof.bytes_per_s / 2)
        step = decode(catalogue.load(row.model), row.context + 1, formats=row.formats)
        beaten += roofline.floor_ns(step, slow) * 1e-9 > row.time_s
    assert beaten >= len(SPEEDS) * 2 // 3


@pytest.mark.parametrize("row", SIZES, ids=lambda r: f"{r.model}-{r.of}")
def test_the_sizes_of_a_log_are_counted_to_the_byte(row: Size) -> None:
    assert row.counted_bytes == row.held_bytes


def test_the_logged_sizes_are_those_of_the_lesson() -> None:
    kv, state = SIZES
    assert (kv.of, kv.counted_bytes / kv.positions) == ("kv", 65_536)
    assert (state.of, state.counted_bytes / state.sequences) == ("state", 156_893_184)


@pytest.mark.parametrize("other", [{"conv": "bf16"}, {"state": "bf16"}, {"sequences": 3}])
def test_other_switches_give_other_sizes(other: dict[str, Any]) -> None:
    state = SIZES[1].model_copy(update=other)
    assert state.counted_bytes != SIZES[1].held_bytes


def test_a_row_that_is_good_is_read(tmp_path: Path) -> None:
    read = measurements.read_measurements(_file(tmp_path, _row("speed", GOOD) + "\n" + _row("size", GOOD_SIZE)))
    assert read.speeds == (Speed(**GOOD),)
    assert read.sizes[0].counted_bytes == 4096 * 36 * 2 * 8 * 128 * 2 == read.sizes[0].held_bytes


BAD_SPEEDS = [
    ({"model": None}, "rows.toml, speed 1 lacks model; it is written as model = "),
    ({"source": None}, "rows.toml, speed 1 lacks source; it is written as source = "),
    ({"condition": None}, "rows.toml, speed 1 lacks condition; "),
    ({"hardware": None}, "rows.toml, speed 1 lacks hardware; "),
    ({"tokens_per_s": None}, "rows.toml, speed 1 has to give either tokens_per_s or ms_per_token, as it was printed."),
    ({"ms_per_token": 10.3}, "rows.toml, speed 1 has to give either tokens_per_s or ms_per_token, as it was printed."),
    ({"token_per_s": 97}, "rows.toml, speed 1 has an unknown key token_per_s; is tokens_per_s meant?"),
    ({"tokens_per_s": -97.0}, "tokens_per_s in rows.toml, speed 1 is -97.0; it has to be more than 0."),
    ({"tokens_per_s": "fast"}, "tokens_per_s in rows.toml, speed 1 is 'fast'; it is written as tokens_per_s = 104.9."),
    ({"context": 0}, "context in rows.toml, speed 1 is 0; it has to be at least 1."),
    ({"source": ""}, "source in rows.toml, speed 1 is ''; it is written as "),
    ({"hardware": "rtx-4091"}, "rows.toml, speed 1 has hardware rtx-4091; is rtx-4090 meant?"),
    ({"model": "Qwen/Qwen3-4b"}, "rows.toml, speed 1 has model Qwen/Qwen3-4b; is Qwen/Qwen3-4B meant?"),
    ({"weights": "int9"}, "rows.toml, speed 1 has weights int9; is int8 meant?"),
    ({"head": "%%"}, "rows.toml, speed 1 has head %%; known are fp32, bf16, "),
    ({"kv": "%%"}, "rows.toml, speed 1 has kv %%; known are fp32, bf16, "),
]


@pytest.mark.parametrize(("changes", "says"), BAD_SPEEDS, ids=[str(changes) for changes, _ in BAD_SPEEDS])
def test_a_bad_row_is_refused_in_one_sentence(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    fields = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    with pytest.raises(LabError) as refused:
        measurements.read_measurements(_file(tmp_path, _row("speed", fields)))
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('speed = "none"', "speed in rows.toml has to be a list of tables, each begun by [[speed]]."),
        ("[speed]\nmodel = 'a'", "speed in rows.toml has to be a list of tables"),
        ("[[speeds]]\n", "rows.toml has an unknown table speeds; it can be speed or size."),
        (
            _row("size", {**GOOD_SIZE, "of": "weights"}),
            "of in rows.toml, size 1 is 'weights'; it can be 'kv' or 'state'.",
        ),
        (_row("size", {**GOOD_SIZE, "state": "int8"}), "rows.toml, size 1 has state int8; known are fp32, bf16, fp16."),
        (_row("size", {**GOOD_SIZE, "conv": "int8"}), "rows.toml, size 1 has conv int8; known are fp32, bf16, fp16."),
        (_row("size", {**GOOD_SIZE, "kv": "bf61"}), "rows.toml, size 1 has kv bf61; is bf16 meant?"),
        (_row("size", {**GOOD_SIZE, "model": "gpt-5"}), "rows.toml, size 1 has model gpt-5; "),
        (_row("speed", GOOD) + "\n" + _row("speed", {**GOOD, "batch": 0}), "batch in rows.toml, speed 2 is 0; "),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(LabError) as refused:
        measurements.read_measurements(_file(tmp_path, text))
    assert str(refused.value).startswith(says)


def test_published_rows_bring_no_torch() -> None:
    code = "import sys; from engine.measurements import *; [judge(r) for r in published().speeds]; "
    code += "print({'torch', 'streamlit'} & set(sys.modules))"
    root = Path(measurements.__file__).parent.parent
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert found.stdout.strip() == "set()"
