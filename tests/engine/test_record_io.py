"""Records out and in: what was exported comes back, and each way to spoil a file is one sentence."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import run, said, step

from engine import recorded
from engine.errors import LabError
from engine.imported import imported_at
from engine.record import Run
from engine.record_io import MAX_FILE_BYTES, read_run, to_csv


def test_an_exported_run_comes_back_marked_as_imported() -> None:
    kept = run()
    assert imported_at(kept) is None
    again = read_run(kept.to_json().encode())
    assert imported_at(again) is not None
    assert again.model_dump(exclude={"imported_at"}) == kept.model_dump()
    assert imported_at(Run.model_validate_json(again.to_json())) == imported_at(again)


def test_fields_of_later_versions_are_kept() -> None:
    document = json.loads(run().to_json()) | {"future": {"a": [1, 2]}}
    assert json.loads(read_run(json.dumps(document).encode()).to_json())["future"] == {"a": [1, 2]}


def test_a_sequence_that_ends_before_the_others_is_no_fault() -> None:
    document = json.loads(run().to_json())
    document["output"]["token_ids"] = document["output"]["token_ids"][:2]
    read_run(json.dumps(document).encode())


def test_what_a_file_hides_is_found_again_and_said_in_its_verdict() -> None:
    document = json.loads(run(decode_ns=(9_000_000, 9_100_000, 9_200_000)).to_json())
    for each in document["steps"]:
        each["flags"] = []
    document["summary"]["flags"] = []
    document["summary"] |= {"verdict": "All is well.", "verdict_sentences": [{"template": "All is well."}]}
    document["probe"] |= {"after_ns": 14_000_000, "moved": 0.0}
    again = read_run(json.dumps(document).encode())
    assert [each.flags for each in again.steps] == [[], *3 * [["beats_roof"]]]
    assert again.summary is not None
    assert again.summary.flags == ["beats_roof", "disturbed"]
    assert "3 of 4 steps lie below the measured roof" in again.summary.verdict
    assert "All is well" not in again.summary.verdict


@pytest.mark.parametrize("kept", recorded.runs().values(), ids=lambda kept: kept.id)
def test_shipped_runs_come_back_unchanged(kept: Run) -> None:
    again = read_run(kept.to_json().encode())
    assert again.model_dump(exclude={"imported_at"}) == kept.model_dump()


def test_a_summary_is_not_believed_but_computed() -> None:
    kept = run()
    document = json.loads(kept.to_json())
    document["summary"] |= {"verdict": "All is well.", "mbu": 0.99, "mfu_prefill": 7.0, "median_abs_error": 0.0}
    document["summary"]["tpot_ms"] |= {"p95": 1.0, "p99": 2.0}
    assert read_run(json.dumps(document).encode()).summary == kept.summary


def test_a_wide_spread_hides_no_time_far_below_the_roof() -> None:
    document = json.loads(run(decode_ns=(9_000_000, 15_000_000)).to_json())
    for point in document["ceilings"]["bandwidth"]:
        point["spread"] = 5.0
    assert [each.flags for each in read_run(json.dumps(document).encode()).steps] == [[], ["beats_roof"], []]


Spoil = Callable[[dict[str, Any]], object]


def _set(*path: str | int, to: Any) -> Spoil:
    def spoil(document: dict[str, Any]) -> None:
        inner: Any = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return spoil


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_set("schema", to=2), "The record has schema 2; this version of the lab reads schema 1."),
        (_set("schema", to={"a": "x" * 99}), "The record has schema"),
        (lambda d: d.pop("schema"), "has no field named schema"),
        (lambda d: d.pop("request"), "The run's field request is wrong: Field required."),
        (_set("id", to="../../../../"), "The run's field id is wrong"),
        (_set("state", to="running"), "The run's field state is wrong"),
        (_set("steps", 1, "time_ns", to=-1), "The run's field steps.1.time_ns is wrong"),
        (_set("steps", 1, "time_ns", to=0), "Step 1 took 0 ns"),
        (_set("steps", 1, "time_ns", to="soon"), "The run's field steps.1.time_ns is wrong"),
        (_set("steps", 1, "bytes", "total", to=5), "bytes.total is 5, its parts add up to 360000000"),
        (_set("steps", 2, "index", to=7), "Step 2 of the run is marked as decode step 7"),
        (_set("steps", 2, "phase", to="prefill"), "Step 2 of the run is marked as prefill step 2"),
        (_set("steps", 2, "token_ids", to=[1, 2]), "Step 2 has 2 tokens for a batch of 1."),
        (_set("steps", 2, "predicted_ns", "expected", to=-5.0), "Step 2 has a predicted time"),
        (_set("steps", 2, "resident_bytes", "kv_filled", to=10**12), "Step 2 fills more of the KV cache"),
        (_set("output", "token_ids", to=[1, 2, 3, 4]), "output has 4 tokens that are not those of its 4 steps"),
        (_set("created_at", to="tomorrow"), "The record was made at tomorrow, which is not a moment like"),
        (_set("created_at", to="9999-12-31T23:59:59+00:00"), "9999-12-31T23:59:59+00:00, which is still to come"),
        (_set("created_at", to="2026-01-02T03:04:05"), "which is not a moment like"),
        (_set("created_at", to="2026-01-02T03:04:05.123456+00:00"), "which is not a moment like"),
        (_set("ceilings", "bandwidth", to=[]), "The record's ceilings hold no read bandwidth"),
        (_set("ceilings", "bandwidth", 0, "spread", to=-1.0), "a spread that no machine can have"),
        (lambda d: d.update(kind=d.pop("steps") and "shape"), "The file holds an experiment, not a run"),
        (_set("output", "token_ids", to=[]), "output has 0 tokens"),
        (_set("summary", "tokens_per_s", to=99.0), "The run's summary says tokens_per_s = 99.0; its own steps give"),
        (_set("summary", "ttft_ms", to=None), "The run's summary says ttft_ms = None"),
        (_set("summary", "tpot_ms", "p50", to=1.0), "The run's summary says tpot_ms.p50 = 1.0"),
        (_set("steps", 1, "flops", to=10**400), "field steps.1.flops is wrong: 1000"),
        (_set("steps", 1, "flops", to=10**22), "field steps.1.flops is wrong: 1000"),
        (_set("steps", 1, "flops", to=0), "Step 1 computes or moves nothing"),
        (_set("steps", 1, "resident_bytes", "weights", to=1e308), "field steps.1.resident_bytes.weights is wrong"),
        (_set("steps", 1, "time_ns", to=10**40), "field steps.1.time_ns is wrong: 1000"),
        (_set("steps", 1, "predicted_ns", "expected", to=1e308), "field steps.1.predicted_ns.expected is wrong"),
        (_set("steps", 1, "predicted_ns", "expected", to=1e16), "field steps.1.predicted_ns.expected is wrong"),
        (_set("preparation", to={"load_ns": 10**40}), "field preparation.load_ns is wrong"),
        (_set("model", "parameters", to=10**50), "field model.parameters is wrong"),
        (_set("model", "config", to={"hidden_size": 10**400}), "field model.config.hidden_size is wrong"),
        (_set("summary", "tpot_ms", "p99", to=1e300), "field summary.tpot_ms.p99 is wrong: 1e+300"),
        (_set("ceilings", "launch_ns", to=1e300), "field ceilings.launch_ns is wrong"),
        (_set("prompt", "text", to="ab\ud83d"), "field prompt.text is wrong: it holds half of a character"),
        (_set("request", "prompt", to="ab\ud83d"), "field request.prompt is wrong: it holds half of a character"),
        (_set("output", "text", to="\udc00"), "(a lone surrogate, U+DC00)"),
        (_set("model", "config", to={"\ud83d": 1}), "field model.config is wrong: it holds half of a character"),
        (_set("request", "batch", to=0), "The batch is 0"),
        (_set("request", "clock", to="sundial"), "sundial is none of"),
        (_set("request", "latent", to="unfolded"), "unfolded is not a form of latent attention"),
        (_set("model", "kv_format", to="int8"), "The run's field model.kv_format is int8, which is not what"),
        (_set("model", "weight_format", to="x" * 999), "The run's field model.weight_format is xxxx"),
        (_set("model", "dtype", to="float16"), "The run's field model.dtype is float16"),
        (_set("request", "dtype", to="bfloat16"), "The run's field model.dtype is float32"),
        (_set("prompt", "token_ids", to=[1, 2, 3]), "Step 0 has 4 tokens at a context of 4; after a prompt of 3"),
        (_set("steps", 2, "context", to=9), "Step 2 has 1 tokens at a context of 9; after a prompt of 4 it has 1 at 6"),
        (_set("steps", 2, "tokens", to=2), "Step 2 has 2 tokens at a context of 6"),
        (_set("steps", 2, "parts", "window", to=10**9), "Step 2 has a part of its bytes that is more than the whole"),
        (_set("steps", 2, "parts", "experts", to=10**9), "Step 2 has a part of its bytes"),
        (lambda d: d.update(warm_up_steps=[d["steps"][0] | {"time_ns": 0}]), "Step 0 took 0 ns"),
        (_set("probe", "load", to=-1.0), "The run's field probe.load is less than a machine can have"),
        (_set("device", "threads", to=0), "The run's field device.threads is less than"),
        (_set("device", "memory_bytes", to=-5), "The run's field device.memory_bytes is less than"),
        (_set("state", to="failed"), "The run is marked as failed with 4 of at most 4 steps"),
        (_set("model", to=None), "marked as done, but does not say which model ran"),
        (_set("device", to=None), "marked as done, but does not say which model ran, and on what"),
        (_set("output", "stopped_by", to="cancelled"), "The run is marked as done with 4 of at most 4 steps"),
        (_set("request", "max_new_tokens", to=3), "The run is marked as done with 4 of at most 3 steps"),
    ],
)
def test_a_fault_is_one_sentence(spoil: Spoil, sentence: str) -> None:
    document = json.loads(run().to_json())
    spoil(document)
    with pytest.raises(LabError) as error:
        read_run(json.dumps(document).encode())
    assert sentence in said(error.value)
    assert "\n" not in said(error.value)
    assert len(said(error.value)) < 400


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"{", b"hello", b"[" * 100_000, b"\x89PNG\r\n", b'{"schema": 1', b"1e", b"9" * 10_000],
)
def test_what_is_not_json_is_said(content: bytes) -> None:
    with pytest.raises(LabError, match=r"The file is (not JSON|JSON but not a record)"):
        read_run(content)


@pytest.mark.parametrize("content", [b"[]", b"1", b'"schema"', b"null", b"{}"])
def test_json_that_is_no_run_is_said(content: bytes) -> None:
    with pytest.raises(LabError, match="JSON but not a record of this lab"):
        read_run(content)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_said(value: str) -> None:
    text = run().to_json().replace('"measured_roof":20000000.0', f'"measured_roof":{value}', 1)
    assert value in text
    with pytest.raises(LabError) as error:
        read_run(text.encode())
    assert said(error.value) == f"The file holds {value} where a number has to be."


def test_a_number_too_large_for_any_machine_is_said() -> None:
    text = run().to_json().replace('"measured_roof":20000000.0', '"measured_roof":1e999', 1)
    with pytest.raises(LabError, match="The file holds 1e999 where a number has to be"):
        read_run(text.encode())


def test_a_huge_file_is_refused_before_it_is_read() -> None:
    with pytest.raises(LabError) as error:
        read_run(b" " * (2 * MAX_FILE_BYTES))
    assert said(error.value) == "The file holds 100 MB; an exported run has at most 50 MB."


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_no_bytes_make_anything_but_a_sentence(content: bytes) -> None:
    with pytest.raises(LabError):
        read_run(content)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["id", "steps", "summary", "prompt", "output", "request", "model", "device", "probe", "state", "ceilings"]


@given(st.sampled_from(FIELDS), JSON_VALUES)
@settings(max_examples=150, deadline=None)
def test_any_value_in_any_field_is_read_or_said(field: str, value: Any) -> None:
    document = json.loads(run().to_json()) | {field: value}
    with suppress(LabError):
        read_run(json.dumps(document).encode())


def test_csv_has_a_row_a_step_with_units_in_its_columns() -> None:
    kept = run()
    kept.warm_up_steps = [step(0, 50_000_000)]
    kept.steps[1].text = '=SUM(A1)\n"quoted", 小明'
    rows = list(csv.DictReader(io.StringIO(to_csv(kept))))
    assert [row["pass"] for row in rows] == ["warm_up"] + ["measured"] * 4
    row = rows[2]
    assert (row["run_id"], row["index"], row["phase"], row["time_ns"]) == (kept.id, "1", "decode", "25000000")
    assert row["moved_weights_bytes"] == str(kept.steps[1].bytes.weights)
    assert row["resident_kv_filled_bytes"] == str(kept.steps[1].resident_bytes.kv_filled)
    assert (row["predicted_datasheet_ns"], row["predicted_measured_roof_ns"]) == ("", "20000000.0")
    # A spreadsheet takes a cell that begins with = for a formula; text never begins with it here.
    assert row["text"].startswith('"')
    assert json.loads(row["text"]) == kept.steps[1].text
    assert all(name.endswith(("_ns", "_bytes")) for name in row if "predicted" in name or "moved" in name)


def test_a_run_without_steps_is_an_empty_table() -> None:
    kept = run()
    kept.steps = []
    assert to_csv(kept) == "run_id,pass,index,phase\n"
