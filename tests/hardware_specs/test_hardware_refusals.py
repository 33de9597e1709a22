"""Devices of one's own: what is accepted, and the one sentence with which everything else is refused."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import hardware
from engine.errors import LabError

GOOD = """
id = "my-card"
vendor = "nvidia"
name = "My card 24GB"
kind = "gpu"
architecture = "ada"
confidence = "B"
retrieved = "2026-11"
memory_bytes = 24e9
usable_memory_bytes = 24_146_608_128
memory_is_largest_option = false
memory_type = "GDDR6"
bandwidth_bytes_per_s = 936e9
cache_bytes = 50_331_648
cache_level = "L2"
compute_capability = "8.9"
cores = 82
power_w = 350
year = 2023
name_patterns = ['My Card( OC)?']
source = ["datasheet"]
remarks = ["One sentence."]

[peaks.bf16]
dense_flops_per_s = 71e12
accumulator = "fp32"
source = ["datasheet"]
sparse_flops_per_s = 142e12
sparse_ratio = 2
measured_flops_per_s = 65e12
measured_source = "bench"

[peaks.fp8]
dense_flops_per_s = 142e12
accumulator = "fp32"
source = ["datasheet"]

[peaks.int8]
dense_flops_per_s = 284e12
accumulator = "int32"
source = ["datasheet"]

[sources]
datasheet = "A datasheet: https://example.org"
bench = "A benchmark"
"""
FIELDS: dict[str, Any] = tomllib.loads(GOOD)
PEAK_KEYS = list(FIELDS["peaks"]["bf16"])
TOP_KEYS = [key for key in FIELDS if key not in ("peaks", "sources")]
REQUIRED = ["id", "vendor", "name", "kind", "architecture", "confidence", "retrieved", "bandwidth_bytes_per_s",
            "source", "sources"]  # fmt: skip


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value + "'" if "\\" in value or "(" in value else f'"{value}"'
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)


def _text(fields: dict[str, Any]) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in fields.items() if key not in ("peaks", "sources")]
    for dtype, peak in fields.get("peaks", {}).items():
        lines += [f"[peaks.{dtype}]", *(f"{key} = {_toml(value)}" for key, value in peak.items())]
    if "sources" in fields:
        lines += ["[sources]", *(f"{key} = {_toml(value)}" for key, value in fields["sources"].items())]
    return "\n".join(lines)


def _changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    fields = copy.deepcopy(FIELDS)
    change(fields)
    return fields


def _at(fields: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        fields = fields[key]
    return fields


PEAK = ("peaks", "bf16")
BAD: list[tuple[str, dict[str, Any], str]] = []


def _bad(name: str, change: Callable[[dict[str, Any]], object], says: str) -> None:
    BAD.append((name, _changed(change), says))


def _renamed(fields: dict[str, Any], key: str, wrong: str) -> None:
    fields[wrong] = fields.pop(key)


# A key missing, misspelt in five ways, or of another type.
for key in REQUIRED:
    _bad(f"no {key}", lambda f, k=key: f.pop(k), f"my-card.toml lacks {key}; it is written as ")
for key in ("dense_flops_per_s", "accumulator", "source"):
    _bad(f"no peak {key}", lambda f, k=key: _at(f, PEAK).pop(k), f"my-card.toml lacks peaks.bf16.{key}; ")
for path, keys in (((), TOP_KEYS), (PEAK, PEAK_KEYS)):
    where = "".join(f"{part}." for part in path)
    for key in keys:
        for wrong in (key[1:], key[:-1], key + "s", key.upper(), key.replace("_", "-") + "-"):
            if wrong in FIELDS:
                continue
            _bad(
                f"{where}{wrong}",
                lambda f, p=path, k=key, w=wrong: _renamed(_at(f, p), k, w),
                f"my-card.toml has an unknown key {where}{wrong}; ",
            )
        for wrong_value in (True, "seventy", -1.5, [], [1], {}):
            good = _at(FIELDS, path)[key]
            if type(good) is type(wrong_value) and not (good == ["datasheet"] or isinstance(good, float)):
                continue
            if key in ("name_patterns", "remarks") and wrong_value == []:
                continue
            _bad(
                f"{where}{key} = {wrong_value!r}",
                lambda f, p=path, k=key, v=wrong_value: _at(f, p).update({k: v}),
                f"{where}{key}",
            )

# A figure in another unit.
for key, values in {
    "bandwidth_bytes_per_s": (936, 0.936, 936e6, 936e12, 1.792e15, 0, -936e9, float("inf"), float("nan")),
    "memory_bytes": (24, 24_000, 24_000_000, 24e15, 0),
    "cache_bytes": (48, 48_000, 48e12),
}.items():
    for value in values:
        _bad(f"{key} = {value}", lambda f, k=key, v=value: f.update({k: v}), f"{key} in my-card.toml is ")
for key in ("dense_flops_per_s", "sparse_flops_per_s", "measured_flops_per_s"):
    for value in (71, 71e6, 71e9 / 10, 71e18, -71e12):
        _bad(
            f"{key} = {value}",
            lambda f, k=key, v=value: _at(f, PEAK).update({k: v}),
            f"peaks.bf16.{key} in my-card.toml",
        )
for value in (2e9, 71e9, 24_000):
    _bad(
        f"usable = {value}",
        lambda f, v=value: f.update(usable_memory_bytes=v),
        "usable_memory_bytes in my-card.toml is ",
    )

# Things that cannot all be true.
_bad(
    "sparse without ratio",
    lambda f: _at(f, PEAK).pop("sparse_ratio"),
    "peaks.bf16 in my-card.toml has sparse_flops_per_s without sparse_ratio; 2 is usual and 4 exists.",
)
_bad(
    "ratio without sparse",
    lambda f: _at(f, PEAK).pop("sparse_flops_per_s"),
    "has sparse_ratio without sparse_flops_per_s",
)
_bad("sparse as dense", lambda f: _at(f, PEAK).update(dense_flops_per_s=142e12), "one of them is the other kind")
_bad(
    "dense as sparse", lambda f: _at(f, PEAK).update(sparse_flops_per_s=71e12), "would be 1.42e+14 sparse, not 7.1e+13"
)
_bad(
    "ratio of one", lambda f: _at(f, PEAK).update(sparse_flops_per_s=71e12, sparse_ratio=1), "it has to be more than 1"
)
_bad("ratio of four", lambda f: _at(f, PEAK).update(sparse_ratio=4), "at a ratio of 4")
_bad(
    "half as dense",
    lambda f: _at(f, ("peaks", "bf16")).update(dense_flops_per_s=35.5e12),
    "one of them is the other kind",
)
_bad("measured above", lambda f: _at(f, PEAK).update(measured_flops_per_s=80e12), "above its dense peak of 7.1e+13")
_bad(
    "measured without source",
    lambda f: _at(f, PEAK).pop("measured_source"),
    "measured_flops_per_s without measured_source",
)
_bad(
    "measured by nobody",
    lambda f: _at(f, PEAK).update(measured_source="me"),
    "peaks.bf16.measured_source in my-card.toml cites",
)
_bad(
    "fp8 slower",
    lambda f: _at(f, ("peaks", "fp8")).update(dense_flops_per_s=40e12),
    "fp8 at 4e+13, below bf16 at 7.1e+13",
)
_bad("fp16 sums", lambda f: _at(f, PEAK).update(accumulator="fp16"), "it can be 'fp32' or 'int32'")
_bad("int32 sums of bf16", lambda f: _at(f, PEAK).update(accumulator="int32"), "the lab counts fp32 sums for bf16")
_bad(
    "fp32 sums of int8",
    lambda f: _at(f, ("peaks", "int8")).update(accumulator="fp32"),
    "the lab counts int32 sums for int8",
)
_bad(
    "source unknown",
    lambda f: f.update(source=["memory"]),
    "source in my-card.toml cites memory, which is not in its [sources]",
)
_bad(
    "peak source unknown",
    lambda f: _at(f, PEAK).update(source=["memory"]),
    "peaks.bf16.source in my-card.toml cites memory",
)
_bad("no sources at all", lambda f: f.update(sources={}), "cites datasheet, which is not in its [sources]; those are -")
_bad("source blank", lambda f: f["sources"].update(datasheet=""), "sources.datasheet in my-card.toml is ''")
_bad("usable alone", lambda f: f.pop("memory_bytes"), "it has to give memory_bytes, as marketed, too")
_bad("kind", lambda f: f.update(kind="card"), "it can be 'gpu', 'cpu' or 'accelerator'")
_bad("confidence", lambda f: f.update(confidence="high"), "it can be 'A', 'A-', 'B' or 'C'")
_bad("retrieved", lambda f: f.update(retrieved="last week"), 'it is written as retrieved = "2026-11"')
_bad("id with blanks", lambda f: f.update(id="My Card"), 'it is written as id = "my-card"')
_bad("year", lambda f: f.update(year=1980), "it has to be at least 2000")
_bad("year to come", lambda f: f.update(year=20230), "it can be 2100 at most")
_bad("power", lambda f: f.update(power_w=350_000), "it can be 20000 at most")
_bad("cores", lambda f: f.update(cores=0), "it has to be at least 1")
_bad("half a byte", lambda f: f.update(memory_bytes=24e9 + 0.5), "memory_bytes in my-card.toml is 24000000000.5")
_bad("greedy pattern", lambda f: f.update(name_patterns=[".*"]), "fits any name")
_bad("empty pattern", lambda f: f.update(name_patterns=["(My Card)?"]), "fits any name")
_bad("broken pattern", lambda f: f.update(name_patterns=["My Card("]), "is not a regular expression")
_bad("long remark", lambda f: f.update(remarks=["a" * 601]), "remarks.0 in my-card.toml is 'aaa")
for dtype in ("bf-16", "bfloat16", "float16", "int4", "dense"):
    _bad(
        f"peak of {dtype}",
        lambda f, d=dtype: f["peaks"].update({d: f["peaks"].pop("bf16")}),
        f"my-card.toml has no place for peaks.{dtype}; it can be 'fp32', 'tf32', ",
    )


@pytest.fixture
def card(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def written(content: str | bytes) -> Path:
        path = tmp_path / "my-card.toml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def _refusal(path: Path) -> str:
    with pytest.raises(LabError) as refused:
        hardware.read_device_file(path)
    return str(refused.value)


def test_there_are_two_hundred_ways_to_go_wrong() -> None:
    assert len(BAD) >= 200
    assert len({name for name, _, _ in BAD}) == len(BAD)


def test_the_file_they_spoil_is_good(card: Callable[[str | bytes], Path]) -> None:
    device = hardware.read_device_file(card(GOOD))
    assert (device.id, device.memory_bytes, device.peak_flops_per_s("bf16")) == ("my-card", 24_000_000_000, 71e12)
    assert hardware.read_device_file(card(_text(FIELDS))) == device


def test_the_example_of_the_readme_is_good(card: Callable[[str | bytes], Path]) -> None:
    example = (hardware.FOLDER / "README.md").read_text().partition("```toml")[2].partition("```")[0]
    assert hardware.read_device_file(card(example)).peaks["bf16"].sparse_ratio == 2


@pytest.mark.parametrize(("fields", "says"), [(f, s) for _, f, s in BAD], ids=[name for name, _, _ in BAD])
def test_a_bad_file_is_refused_in_one_sentence(
    fields: dict[str, Any], says: str, card: Callable[[str | bytes], Path]
) -> None:
    try:
        path = card(_text(fields))
        tomllib.loads(path.read_text())
        said = _refusal(path)
    except tomllib.TOMLDecodeError:
        raise AssertionError("this case is about what a file says, not how it is written") from None
    assert says in said
    assert said[-1] in ".?"
    assert "\n" not in said
    assert len(said) < 600
    for leak in ("Traceback", "pydantic", "ValidationError", "[type=", "None"):
        assert leak not in said


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("bandwith_bytes_per_s", "bandwidth_bytes_per_s"), ("bandwidth_gb_per_s", "bandwidth_bytes_per_s"),
     ("memory_byte", "memory_bytes"), ("name_pattern", "name_patterns"), ("remark", "remarks"), ("tdp_w", "power_w")],
)  # fmt: skip
def test_a_misspelt_key_is_answered_with_the_nearest(
    wrong: str, near: str, card: Callable[[str | bytes], Path]
) -> None:
    said = _refusal(card(_text(_changed(lambda f: _renamed(f, near, wrong)))))
    if wrong == "tdp_w":
        assert said.startswith("my-card.toml has an unknown key tdp_w; ")
    else:
        assert said == f"my-card.toml has an unknown key {wrong}; is {near} meant?"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "my-card.toml lacks id; it is written as"), (b"= 3", "my-card.toml is not TOML: "),
        (b'id = "a"\nid = "b"', "my-card.toml is not TOML: "), (b"\xff\xfe\x00", "my-card.toml is not text in UTF-8"),
        (b"{}", "my-card.toml is not TOML: "), (b"#" * 70_000, "my-card.toml is larger than 64 KiB"),
        (GOOD.partition("[peaks")[0].encode(), "my-card.toml lacks sources; "),
    ],
    ids=["empty", "no key", "key twice", "not text", "json", "large", "half a file"],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(content: bytes, says: str, card: Callable[[str | bytes], Path]) -> None:
    said = _refusal(card(content))
    assert says in said
    assert said.endswith(".")


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    assert _refusal(tmp_path / "none.toml").endswith("none.toml cannot be read: no such file or directory.")
    assert _refusal(tmp_path).endswith("cannot be read: is a directory.")


def test_a_device_from_a_form() -> None:
    device = hardware.from_form(
        {"name": "My Card!", "bandwidth_bytes_per_s": 936e9, "memory_bytes": 24e9, "bf16_flops_per_s": 71e12,
         "int8_flops_per_s": 284e12, "fp8_flops_per_s": None}
    )  # fmt: skip
    assert (device.id, device.name, device.confidence) == ("custom-my-card", "My Card!", "C")
    assert device.ridge_flop_per_byte("bf16") == pytest.approx(75.85, abs=0.01)
    assert list(device.peaks) == ["bf16", "int8"]
    assert device.id not in hardware.ids()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "the form lacks name"),
        ({"name": "Mine"}, "Mine lacks bandwidth_bytes_per_s; it is written as bandwidth_bytes_per_s = 3.35e12."),
        ({"name": "Mine", "bandwidth_bytes_per_s": None}, "Mine lacks bandwidth_bytes_per_s"),
        ({"name": "Mine", "bandwidth_bytes_per_s": 936}, "so this figure is in another unit"),
        ({"name": "Mine", "bandwidth_bytes_per_s": "fast"}, "bandwidth_bytes_per_s in Mine is 'fast'"),
        ({"name": "Mine", "bandwidth_bytes_per_s": 936e9, "bf16_flops_per_s": 71}, "peaks.bf16.dense_flops_per_s in "),
        ({"name": "Mine", "bandwidth_bytes_per_s": 936e9, "bf16_tflops": 71}, "Mine has an unknown key bf16_tflops"),
        ({"name": "Mine", "bandwidth_bytes_per_s": 936e9, "memory_bytes": 24}, "memory_bytes in Mine is 24"),
    ],
)  # fmt: skip
def test_a_form_is_refused_in_the_same_words(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(LabError) as refused:
        hardware.from_form(fields)
    assert says in str(refused.value)


def test_a_device_cannot_be_changed_and_can_be_a_key() -> None:
    device = hardware.load("h100-sxm")
    with pytest.raises(ValueError, match="frozen"):
        device.bandwidth_bytes_per_s = 1.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        device.source.append("me")  # type: ignore[attr-defined]
    faster = device.model_copy(update={"power_w": 1})
    assert {device: 1, faster: 2}[hardware.load("h100-sxm")] == 1
