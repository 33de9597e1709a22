"""A KV cache in fewer bits, asked for: who is refused, what is measured for it, and what a record then says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from records import ceilings as general_ceilings
from service import ask, made_up_ceilings, new_store

from engine import catalogue, checkpoint, cli, ledger, request
from engine import device as devices
from engine.bench import Bench, _knows
from engine.broker import Broker
from engine.calibrate_model import for_model, weight_bytes
from engine.ceilings import Ceilings, SmallOpPoint
from engine.errors import LabError
from engine.expected import predictor
from engine.ledger import Formats
from engine.model import load
from engine.protocol import RunJob
from engine.record import Run
from engine.record_io import read_run
from engine.run_job import RunInProgress
from engine.tell import Teller

CPU = torch.device("cpu")
OTHER = "random:openai-community/gpt2@layers=1"
REFUSED = "is not one of the dense decoders that the compiled kernels take"


def attention(form: str, time_ns: float, working_set: int) -> SmallOpPoint:
    """Decode attention of one sequence of tiny-3.7m, over a cache in this format."""
    return SmallOpPoint(
        kind="attention", width=256, dtype="fp32", rows=1, time_ns=time_ns, spread=0.1, working_set_bytes=working_set,
        batch=1, context=64, kv_width=128, form=form,
    )  # fmt: skip


def known(*forms: str) -> Ceilings:
    """Made-up ceilings of this machine that know tiny-3.7m, and its attention over caches in these formats."""
    made = made_up_ceilings(devices.facts(CPU))
    working_set = made.linear[0].working_set_bytes
    return made.model_copy(update={"small_ops": [attention(form, 5e4, working_set) for form in forms]})


@pytest.fixture(scope="module")
def run() -> Run:
    """A run of the smallest model with its cache in int8, as the engine's process measures it."""
    job = RunJob(
        id="int8int8int8",
        created_at="2026-01-02T03:04:05+00:00",
        request=ask(kv="int8", batch=2, device="cpu"),
        ceilings=known("", "int8"),
        allow_paths=False,
    )
    return RunInProgress(job, Bench(), Teller(job.id, lambda line: None, lambda: False)).measure()


def test_a_record_says_its_format_and_has_its_bytes(run: Run) -> None:
    assert run.state == "done"
    assert run.model is not None
    assert (run.model.weight_format, run.model.kv_format, run.request.kv) == ("fp32", "int8", "int8")
    one = 6 * 2 * 2 * (64 + 2)  # layers, keys and values, heads of 64 numbers with a scale of two bytes
    for step in run.steps:
        assert step.resident_bytes.kv_filled == 2 * step.context * one
        assert step.bytes.kv_write == 2 * step.tokens * one
        assert step.bytes.kv_read == (2 * (step.context - 1) * one if step.phase == "decode" else 0)
    positions = run.steps[0].context + 8 - 1
    assert run.steps[-1].resident_bytes.kv_allocated == 2 * positions * one
    spec = catalogue.load("tiny-3.7m")
    counted = ledger.decode(spec, run.steps[-1].context, batch=2, formats=Formats.engine("fp32", kv="int8"))
    assert run.steps[-1].bytes.total == counted.bytes.total


def test_a_record_goes_out_and_comes_back(run: Run) -> None:
    again = read_run(run.to_json().encode())
    assert again.model == run.model
    assert again.steps == run.steps


def test_its_attention_is_expected_from_what_was_measured_over_such_a_cache() -> None:
    spec = catalogue.load("tiny-3.7m")
    working_set = weight_bytes(spec, "fp32")
    both = known().model_copy(
        update={"small_ops": [attention("", 3e6, working_set), attention("int8", 1e6, working_set)]}
    )
    plain, narrow = (
        predictor(spec, both, None, Formats.engine("fp32", kv=kv)).decode(64).predicted_ns.expected
        for kv in (None, "int8")
    )
    assert plain - narrow == pytest.approx(6 * 2e6)  # six layers


def test_measuring_one_format_keeps_what_is_known_of_the_other() -> None:
    spec = catalogue.load("tiny-3.7m")
    start = general_ceilings(device=devices.facts(CPU))
    found = for_model(start, spec, "fp32", rows=[1], budget_s=1e-9, kv="int8")
    assert _knows(found, "int8")
    assert not _knows(found, None)
    both = for_model(found, spec, "fp32", rows=[1], budget_s=1e-9)
    assert _knows(both, "int8")
    assert _knows(both, None)
    assert not _knows(both, "bf16")
    forms = [point for point in both.small_ops if point.kind == "attention" and point.form == "int8"]
    assert forms == [point for point in found.small_ops if point.kind == "attention"]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker whose engine is not started."""
    return Broker(new_store(tmp_path), allow_paths=True, start_worker=False)


@pytest.mark.parametrize("format_", ["int8", "bf16"])
def test_a_family_without_the_choice_is_refused_before_it_is_queued(format_: str, broker: Broker) -> None:
    with pytest.raises(LabError, match=REFUSED):
        broker.submit(ask(model=OTHER, kv=format_, dtype="float32"), "a reader")
    assert broker.active_run("a reader") is None


def test_a_device_or_a_type_without_it_is_refused(broker: Broker) -> None:
    spec = catalogue.load("tiny-3.7m")
    with pytest.raises(LabError, match="in float32, on a CPU; this run is in float32, on cuda"):
        request.check_kv("int8", "tiny-3.7m", spec, dtype="float32", device="cuda")
    with pytest.raises(LabError, match="does not keep a KV cache in int8 when it computes in bfloat16"):
        broker.submit(ask(kv="int8", dtype="bfloat16"), "a reader")
    with pytest.raises(LabError, match="KV cache in q4_0"):
        broker.submit(ask(kv="q4_0"), "a reader")
    request.check_kv("bf16", "tiny-3.7m", spec, dtype="bfloat16", device="cuda")  # what is computed in is no choice


def test_without_the_kernels_it_is_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_KERNELS", "torch")
    with pytest.raises(LabError, match="needs the compiled kernels"):
        broker.submit(ask(kv="int8"), "a reader")
    with pytest.raises(LabError, match="needs the compiled kernels"):
        load("tiny-3.7m", kv="int8")


def test_the_command_line_says_it_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "--model", "tiny-3.7m", "--prompt", "Hello", "--kv", "int8", "--dtype", "bfloat16", "--json"]
    assert cli.main(asked) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: The engine does not keep a KV cache in int8 when it computes in bfloat16")
    assert len(error.splitlines()) == 1


def test_another_decoder_holds_its_cache_in_what_it_computes_in() -> None:
    model = load(OTHER, dtype="float32", max_tokens=8)
    model.hold_kv(None)
    with pytest.raises(LabError, match=REFUSED):
        model.hold_kv("int8")


def test_a_run_without_the_choice_finds_the_model_as_it_was() -> None:
    source, bench = checkpoint.resolve("tiny-3.7m", allow_paths=False), Bench()
    model = bench.model(source, CPU, "float32", None, "int8")
    ids = torch.ones(2, 5, dtype=torch.long)
    model.prefill(ids, positions=9)
    assert model.cache.bytes.kv_allocated == 2 * 9 * 6 * 2 * 2 * 66
    assert bench.held_bytes(source, CPU, "float32") == model.resident_weight_bytes + 2 * 9 * 6 * 2 * 2 * 66
    assert bench.model(source, CPU, "float32") is model
    model.prefill(ids, positions=9)
    assert model.cache.bytes.kv_allocated == 2 * 9 * 6 * 2 * 2 * 64 * 4
