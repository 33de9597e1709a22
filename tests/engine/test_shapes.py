"""One matrix over its rows: names and shapes against transformers, counts against torch, the knee against hand."""

from __future__ import annotations

import json

import pytest
import torch
from records import ceilings, facts, forged, run, said
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from engine import catalogue, experiment_record, matrices, shapes
from engine.errors import LabError
from engine.experiment import Predicted, flags
from engine.imported import imported_at
from engine.judging import LeastTime, roof_of
from engine.shapes import ShapePoint, ShapeRecord, ShapeRequest

ANCHOR = "Qwen/Qwen3.8-27B"


def points(times: dict[int, float]) -> list[ShapePoint]:
    """A measured curve: rows -> nanoseconds."""
    predicted = Predicted(datasheet=None, measured_roof=1.0)
    return [ShapePoint(rows=r, flops=1, moved_bytes=1, predicted_ns=predicted, time_ns=t) for r, t in times.items()]


def record(**changes: object) -> ShapeRecord:
    """A record of the lesson's matrix with three measured points."""
    matrix = matrices.named(catalogue.load(ANCHOR), "mlp.up_proj")
    made = matrices.predict(matrix, "fp32", [1, 64, 2048], ceilings())
    for point in made:
        point.time_ns = point.predicted_ns.measured_roof * 1.2
    values = {
        "schema": 1,
        "id": "shapeshape01",
        "state": "done",
        "created_at": "2026-01-02T03:04:05+00:00",
        "package_version": "0",
        "device": facts(),
        "ceilings": ceilings(),
        "request": ShapeRequest(weights="fp32", rows=[1, 64, 2048]),
        "k": matrix.k,
        "n": matrix.n,
        "dtype": "fp32",
        "weight_bytes": matrix.bytes_in("fp32"),
        "points": made,
    }
    return ShapeRecord.model_validate({**values, **changes})


# ---- which matrices there are -----------------------------------------------------------------------


@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "HuggingFaceTB/SmolLM2-135M", "google/gemma-3-270m"])
def test_the_matrices_are_those_of_transformers(model: str) -> None:
    """Names, shapes and counts of every 2-D weight of the layers, from a model built by the reference."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = dict(catalogue.config(model))
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    expected: dict[str, tuple[int, int, int]] = {}
    for name, tensor in built.state_dict().items():
        if ".layers." in name and name.endswith(".weight") and tensor.dim() == 2:
            short = name.split(".layers.")[1].split(".", 1)[1].removesuffix(".weight")
            count = expected.get(short, (0, 0, 0))[2]
            expected[short] = (tensor.shape[1], tensor.shape[0], count + 1)
    found = matrices.of(catalogue.load(model))
    assert {name: (m.k, m.n, m.count) for name, m in found.items() if "." in name} == expected
    head = built.get_output_embeddings().weight
    assert (found["lm_head"].n, found["lm_head"].k) == tuple(head.shape)


def test_the_lessons_matrix_is_the_default_and_every_model_has_some() -> None:
    asked = ShapeRequest()
    matrix = matrices.named(catalogue.load(asked.model), asked.matrix)
    assert (matrix.k, matrix.n, matrix.count) == (5120, 17408, 64)
    for model in catalogue.ids():
        assert "lm_head" in matrices.of(catalogue.load(model)), model


def test_experts_are_counted_each() -> None:
    deepseek = matrices.of(catalogue.load("deepseek-ai/DeepSeek-V3"))
    assert deepseek["mlp.experts.up_proj"].count == 58 * 256
    assert deepseek["mlp.up_proj"].count == 3


def test_fused_matrices_are_their_parts_side_by_side() -> None:
    known = matrices.of(catalogue.load(ANCHOR))
    fused = known["gate_up_proj"]
    assert fused.parts == ("mlp.gate_proj", "mlp.up_proj")
    assert fused.n == sum(known[name].n for name in fused.parts)


# ---- what is counted --------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize(("weights", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_bytes_and_flops_are_torchs(rows: int, weights: str, dtype: torch.dtype) -> None:
    matrix = matrices.named(catalogue.load("smollm2-135m"), "mlp.down_proj")
    weight, x = torch.zeros(matrix.n, matrix.k, dtype=dtype), torch.zeros(rows, matrix.k, dtype=dtype)
    with FlopCounterMode(display=False) as counter:
        y = functional.linear(x, weight)
    assert matrix.flops(rows) == counter.get_total_flops()
    assert matrix.moved_bytes(rows, weights) == weight.nbytes + x.nbytes + y.nbytes
    assert matrix.bytes_in(weights) == weight.nbytes


def test_the_roof_by_hand() -> None:
    """18 GB/s and 100 GFLOP/s: one row of 5120 x 17408 in fp32 is 356.5 MB, so 19.8 ms; 2048 rows 3.651 s."""
    matrix = matrices.named(catalogue.load(ANCHOR), "mlp.up_proj")
    one, many = matrices.predict(matrix, "fp32", [2048, 1], ceilings())
    assert one.rows == 1
    assert one.predicted_ns.measured_roof == pytest.approx((5120 * 17408 + 5120 + 17408) * 4 / 18e9 * 1e9)
    assert many.predicted_ns.measured_roof == pytest.approx(2 * 2048 * 5120 * 17408 / 100e9 * 1e9)
    assert one.predicted_ns.datasheet is None
    assert one.time_ns is None


def test_the_datasheets_roof_where_the_device_is_listed() -> None:
    """The lesson's H100: 178 MB at 3.35 TB/s are 53 microseconds; 2048 rows at 989.5 TFLOP/s 369."""
    listed = ceilings(device=facts(kind="cuda", hardware_id="h100-sxm"), peak_flops_per_s={"bf16": 6e14})
    matrix = matrices.named(catalogue.load(ANCHOR), "mlp.up_proj")
    one, many = matrices.predict(matrix, "bf16", [1, 2048], listed)
    assert one.predicted_ns.datasheet == pytest.approx(53.2e3, rel=2e-3)
    assert many.predicted_ns.datasheet == pytest.approx(369e3, rel=2e-3)


# ---- the knee ---------------------------------------------------------------------------------------


def test_on_a_perfect_roof_the_knee_is_the_ridge() -> None:
    """Ten to read, one a row: the two lines meet at ten rows, and a quarter more than flat is at 12.5."""
    curve = points({rows: max(10.0, float(rows)) for rows in shapes.ROWS})
    assert shapes.knee_rows(curve) == pytest.approx(10.0)
    assert shapes.flat_until(curve) == pytest.approx(12.5, abs=0.3)


def test_a_slow_kernel_for_one_row_does_not_move_the_knee() -> None:
    """Ten to read, but a single row takes twelve: the two lines meet at ten all the same."""
    assert shapes.knee_rows(points({rows: max(10.0, float(rows)) for rows in shapes.ROWS} | {1: 12.0})) == 10.0


def test_no_flat_start_is_said() -> None:
    assert shapes.flat_until(points({1: 10.0, 2: 30.0, 4: 31.0, 8: 60.0})) < 2


def test_without_a_slope_there_is_no_knee() -> None:
    assert shapes.knee_rows(points({1: 10.0, 2: 10.0, 4: 11.0})) is None
    assert shapes.flat_until(points({1: 10.0, 2: 10.0, 4: 11.0})) is None
    assert shapes.knee_rows(points({2: 10.0, 4: 20.0, 8: 40.0})) is None, "one row was not measured"
    assert shapes.knee_rows([]) is None


def test_one_disturbed_sample_at_the_end_does_not_move_the_knee() -> None:
    curve = {rows: max(10.0, float(rows)) for rows in shapes.ROWS} | {2048: 9000.0}
    assert shapes.knee_rows(points(curve)) == pytest.approx(10.0)


def test_the_ridge_is_that_of_the_ceilings() -> None:
    """Peak / bandwidth / 2 times the bytes of a weight: 100 / 18 / 2 x 4."""
    assert shapes.ridge_rows(record()) == pytest.approx(100 / 18 / 2 * 4)


def test_faster_than_a_roof_is_flagged_and_never_hidden() -> None:
    """360 MB at 18 GB/s are 20 ms, known to 5 %; the point says itself that the sheet allows 15."""
    predicted = Predicted(datasheet=15e6, measured_roof=20e6)
    point = ShapePoint(rows=1, flops=1, moved_bytes=360_000_000, predicted_ns=predicted)
    assert flags(point, ceilings(), "fp32") == []
    for ms, found in ((19.1, []), (18.9, ["beats_roof"]), (14.9, ["beats_roof", "beats_datasheet"])):
        assert flags(point.model_copy(update={"time_ns": ms * 1e6}), ceilings(), "fp32") == found


def test_the_ceiling_that_makes_the_roof_lends_its_spread() -> None:
    """1 MB is read at 100 GB/s, known to 2 %; 100 MB at 18 GB/s, to 5 %; arithmetic is known to 1 %."""
    assert roof_of(ceilings(), "fp32", 0, 1e6) == LeastTime(pytest.approx(1e4), 0.02)
    assert roof_of(ceilings(), "fp32", 0, 1e6, working_set_bytes=1e8) == LeastTime(pytest.approx(1e6 / 18), 0.05)
    assert roof_of(ceilings(), "fp32", 1e9, 1e6) == LeastTime(pytest.approx(1e7), 0.01)
    assert roof_of(ceilings(), "int4", 1e9, 1e6) == LeastTime(pytest.approx(1e4), 0.02)
    unlike = ceilings(peak_spread=0.2, peak_spreads={"fp32": 0.03, "bf16": 0.2})
    assert roof_of(unlike, "fp32", 1e9, 1e6) == LeastTime(pytest.approx(1e7), 0.03)


def test_what_is_missing_for_a_knee_is_said() -> None:
    def told(times: dict[int, float]) -> str:
        return " ".join(map(str, shapes.missing(points(times))))

    assert told({}) == ""
    assert "A single row was not measured" in told({2: 10.0, 4: 10.0, 8: 40.0})
    assert "no end of the flat start" in told({1: 10.0, 2: 10.0})
    assert "A knee takes at least three numbers of rows." in told({1: 10.0, 2: 10.0})
    assert "Up to 4 rows the time has not doubled" in told({1: 10.0, 2: 10.0, 4: 15.0})
    assert told({1: 10.0, 2: 10.0, 4: 40.0}) == ""


# ---- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "No number of rows"),
        ([0], "0 rows were asked for"),
        ([1, 5000], "5000 rows"),
        (list(range(1, 80)), "79 numbers of rows"),
    ],
)
def test_rows_that_cannot_be(rows: list[int], sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        shapes.check(ShapeRequest(rows=rows))


def test_an_unknown_matrix_or_format_names_those_there_are() -> None:
    with pytest.raises(LabError, match=r"no matrix w_up .* it has .*mlp\.up_proj"):
        matrices.named(catalogue.load(ANCHOR), "w_up")
    with pytest.raises(LabError, match=r"fp7 is not a format .* fp32, bf16"):
        matrices.check_format("fp7")


@pytest.mark.parametrize(
    ("free", "sentence"),
    [
        (300e6, "in bf16 it would fit"),
        (100e6, "the largest matrix of this model that fits is"),
        (1e6, "choose a smaller model"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(free: float, sentence: str) -> None:
    spec, asked = catalogue.load(ANCHOR), ShapeRequest(weights="fp32", rows=[1, 4])
    with pytest.raises(LabError) as refused:
        matrices.check_memory(spec, matrices.named(spec, "mlp.up_proj"), asked, int(free))
    assert "needs 0.36 GB" in said(refused.value)
    assert sentence in said(refused.value)


def test_too_many_rows_are_refused_with_how_many_would_fit() -> None:
    spec, asked = catalogue.load(ANCHOR), ShapeRequest(weights="bf16", rows=[4096])
    matrix = matrices.named(spec, "mlp.up_proj")
    free = matrix.bytes_in("bf16") + 100 * (5120 + 17408) * 2
    with pytest.raises(LabError, match="up to 100 rows would fit"):
        matrices.check_memory(spec, matrix, asked, free)
    matrices.check_memory(spec, matrix, ShapeRequest(weights="bf16", rows=[100]), free)


# ---- files ------------------------------------------------------------------------------------------


def test_a_record_survives_its_file() -> None:
    again = experiment_record.read(record().to_json().encode())
    assert imported_at(again) is not None
    assert again.model_dump(exclude={"imported_at"}) == record().model_dump()
    table = experiment_record.to_csv(record()).splitlines()
    assert table[0].startswith("experiment_id,kind,rows,time_ns,spread")
    assert len(table) == 4
    assert table[3].startswith("shapeshape01,shape,2048,")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("points", 0, "flops"), 5, "takes 178257920"),
        (("points", 1, "time_ns"), 1e300, "points.1.time_ns is wrong"),
        (("points", 1, "time_ns"), -1, "points.1.time_ns is wrong"),
        (("points", 1, "predicted_ns", "measured_roof"), 0, "no machine can have"),
        (("state",), "running", "had not ended"),
        (("created_at",), "yesterday", "not a moment"),
        (("created_at",), "9999-12-31T23:59:59+00:00", "still to come"),
        (("points", 1, "spread"), -3, "points.1.spread is wrong"),
        (("points", 1, "moved_bytes"), 10**300, "points.1.moved_bytes is wrong"),
        (("points", 1, "predicted_ns", "expected"), -5, "no machine can have"),
        (("points", 1, "rows"), 1, "several points at the same place"),
        (("error",), {"template": "{x:>99999999}", "params": {"x": "y"}}, "plain names in braces"),
        (("error",), {"template": "{x.__class__}", "params": {"x": "y"}}, "plain names in braces"),
        (("schema",), 9, "schema 9"),
        (("kind",), "recipe", "field kind is wrong"),
        (("id",), "../etc/passw", "id is wrong"),
    ],
)
def test_a_forged_record_is_refused_in_one_sentence(path: tuple[object, ...], value: object, sentence: str) -> None:
    with pytest.raises(LabError) as refused:
        experiment_record.read(forged(record(), path, value))
    assert sentence in str(refused.value)


def test_a_flag_that_a_file_leaves_out_is_found_again() -> None:
    document = json.loads(record().to_json())
    document["points"][0]["time_ns"] = document["points"][0]["predicted_ns"]["measured_roof"] * 0.5
    document["points"][0]["flags"] = []
    document["points"][0]["predicted_ns"]["measured_roof"] = 1.0  # a roof lowered by hand hides nothing either
    document["points"][1]["flags"] = ["beats_roof"]
    again = experiment_record.read(json.dumps(document).encode())
    assert [point.flags for point in again.points] == [["beats_roof"], [], []]
    document["ceilings"] = None
    document["points"][1]["time_ns"] = document["points"][1]["predicted_ns"]["measured_roof"] * 0.5
    again = experiment_record.read(json.dumps(document).encode())
    assert [point.flags for point in again.points] == [[], ["beats_roof"], []], "without ceilings by the roof it names"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("bandwidth", 0, "working_set_bytes"), 0),
        (("bandwidth", 0, "working_set_bytes"), 10**12),
        (("bandwidth", 0, "spread"), -1),
        (("peak_spread",), 1e20),
        (("peak_flops_per_s", "fp32"), -5),
    ],
)
def test_ceilings_that_cannot_be_are_refused(path: tuple[object, ...], value: object) -> None:
    with pytest.raises(LabError, match="that no machine can have"):
        experiment_record.read(forged(record(), ("ceilings", *path), value))


def test_a_run_is_not_taken_for_an_experiment() -> None:
    with pytest.raises(LabError, match="holds a run, not an experiment"):
        experiment_record.read(run().to_json().encode())
    assert not experiment_record.holds_experiment(run().to_json().encode())
    assert not experiment_record.holds_experiment(b"{")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b'{"kind": NaN}', b"[" * 100_000])
def test_what_is_no_record_is_refused_in_one_sentence(content: bytes) -> None:
    with pytest.raises(LabError):
        experiment_record.read(content)
