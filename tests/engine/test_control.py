"""The control readings: what they read, where they are taken, and that a run's record says what came of them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import BaseModel
from service import ask, made_up_ceilings

from engine import catalogue, checkpoint, control
from engine import device as devices
from engine.bench import Bench
from engine.calibrate_model import for_model, weight_bytes
from engine.ceilings import Ceilings, ControlPoint, ControlRates
from engine.control import Control
from engine.expected import predictor
from engine.judging import UNSTEADY
from engine.ledger import Formats
from engine.model import load
from engine.present import Present, present
from engine.protocol import RunJob
from engine.record import Run
from engine.run_job import RunInProgress
from engine.tell import Teller

MODEL = "tiny-3.7m"
TIMES = Present(reading=1.5, multiplying=0.8)


def test_memory_is_read_whatever_it_holds_once_each_and_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PIECE_BYTES", 64)
    shared = torch.zeros(5, 3, dtype=torch.bfloat16)  # 30 bytes, of which 24 are whole words
    packed = torch.full((150,), -1, dtype=torch.int8)  # 144 bytes in words: pieces of 64, 64 and 16
    one = Control()
    apart, odd = torch.zeros(8, 8).T[:, :3], torch.zeros(101)[1:]
    one.take([shared, packed, shared, torch.zeros(3, dtype=torch.int8), apart, odd])
    assert [piece.nbytes for piece in one._pieces] == [24, 64, 64, 16]
    assert int(one._pieces[1].sum()) == -8
    for following in (1, 2, 3, 0):
        assert one._read_for(1) > 0
        assert one._next == following


def test_samples_make_rates_and_nothing_makes_none() -> None:
    one = Control()
    one.sample()
    assert one.rates() is None
    weights = torch.zeros(2**22)
    one.take([weights])
    for _ in range(3):
        one.sample()
    rates = one.rates()
    assert rates is not None
    assert 1e8 < rates.read_bytes_per_s < 1e13
    assert 1e8 < rates.multiplied_flops_per_s < 1e14
    assert 0 <= rates.read_chance < 10
    one._read, one._multiplied = [0.1, 0.2, 0.3, 0.6, 9.0], [1.0]
    kept = one.rates()
    assert kept is not None
    assert (kept.read_bytes_per_s, kept.multiplied_flops_per_s) == pytest.approx((1e9 / 0.3, 1e9))
    assert kept.read_chance == pytest.approx(math.log(2) / (math.sqrt(2) * 0.6745))
    assert kept.multiplied_chance == UNSTEADY, "one is too few to tell"


def test_a_loaded_model_is_read_and_a_device_of_ones_own_is_not() -> None:
    assert len(control.look(load(MODEL))) == 1
    assert control.look(SimpleNamespace(device=torch.device("meta"))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "dtype"), [(MODEL, "fp32"), ("random:Qwen/Qwen3.5-0.8B@layers=2", "bf16")])
def test_they_are_taken_beside_the_walks_of_every_kind_of_model(name: str, dtype: str) -> None:
    spec = checkpoint.resolve(name, allow_paths=True).spec
    general = made_up_ceilings(devices.facts("cpu")).model_copy(update={"linear": [], "small_ops": []})
    kept = ControlPoint(dtype="fp32", working_set_bytes=1, read_bytes_per_s=1.0, multiplied_flops_per_s=1.0)
    stale = kept.model_copy(update={"dtype": dtype, "working_set_bytes": weight_bytes(spec, dtype)})
    known = general.model_copy(update={"controls": [kept, stale]})
    found = for_model(known, spec, dtype, rows=[1], budget_s=1e-9).controls
    assert found[0] == kept
    (measured,) = found[1:]
    assert (measured.dtype, measured.working_set_bytes) == (dtype, weight_bytes(spec, dtype))
    assert measured.read_bytes_per_s > 1e6


def run_with(monkeypatch: pytest.MonkeyPatch, now: Present | None, **changes: Any) -> tuple[Run, Ceilings]:
    """A run of the tiny model on a machine that is as many times slower than its ceilings as `now` says."""
    then = ControlPoint(
        dtype="fp32",
        working_set_bytes=weight_bytes(catalogue.load(MODEL), "fp32"),
        read_bytes_per_s=9e9,
        multiplied_flops_per_s=9e9,
    )
    known = made_up_ceilings(devices.facts("cpu"))
    if now is not None:
        known = known.model_copy(update={"controls": [then]})
        rates = ControlRates(read_bytes_per_s=9e9 / now.reading, multiplied_flops_per_s=9e9 / now.multiplying)
        monkeypatch.setattr(control, "look", lambda model: [rates])
    told: list[BaseModel] = []
    job = RunJob(id="controlled12", created_at="2026-01-02", request=ask(**changes), ceilings=known)
    return RunInProgress(job, Bench(), Teller(job.id, told.append, lambda: False)).measure(), known


def test_a_run_says_how_far_its_lines_were_scaled_and_is_judged_by_the_ceilings_as_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, known = run_with(monkeypatch, TIMES)
    assert run.probe is not None
    assert run.ceilings is not None
    assert run.probe.reading_scaled_by == pytest.approx(1.5)
    assert run.probe.multiplying_scaled_by == pytest.approx(0.8)
    assert run.ceilings.bandwidth == known.bandwidth
    assert run.ceilings.peak_flops_per_s == known.peak_flops_per_s
    assert len(run.probe.control) == 2, "before and after the warm-up"
    assert present(run.ceilings, "fp32", weight_bytes(catalogue.load(MODEL), "fp32"), run.probe.control).reading == (
        run.probe.reading_scaled_by
    ), "what the lines were scaled by follows from the record"
    now = Present(run.probe.reading_scaled_by, run.probe.multiplying_scaled_by)
    formats, spec = Formats.engine("fp32"), catalogue.load(MODEL)
    lines = predictor(spec, run.ceilings, None, formats, run.request.batch, alike=True, now=now)
    assert run.warm_up_steps
    for step in run.steps:
        predicted = lines.decode(step.context) if step.phase == "decode" else lines.prefill(step.tokens)
        assert step.predicted_ns.expected == pytest.approx(predicted.predicted_ns.expected)


def test_where_the_ceilings_have_no_control_readings_nothing_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    run, known = run_with(monkeypatch, None)
    assert run.probe is not None
    assert (run.probe.reading_scaled_by, run.probe.multiplying_scaled_by) == (1.0, 1.0)
    assert run.ceilings is not None
    assert run.ceilings.peak_flops_per_s == known.peak_flops_per_s
