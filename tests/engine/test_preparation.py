"""What a run says and notes of the time before its first step: compiling, loading, a long prompt read in chunks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel
from service import ask, made_up_ceilings

from engine import device as devices
from engine.bench import Bench
from engine.chunks import chunk_lengths
from engine.errors import LabError
from engine.kernels import entry
from engine.kernels.notice import listening
from engine.measure import Stopped
from engine.model import load
from engine.protocol import Advanced, RunJob
from engine.record import Run
from engine.run_job import RunInProgress
from engine.tell import Teller

LONG = "Once upon a time in a village by the sea there lived an old clockmaker who counted. " * 4


class Voice:
    """A job's teller, and what it has said; cancelled once it says a certain thing."""

    def __init__(self, cancelled_at: str = "\0") -> None:
        self.said: list[tuple[str, str, float | None]] = []
        self._cancelled_at = cancelled_at
        self.teller = Teller("voicevoice12", self._hear, self._cancelled)

    def _hear(self, event: BaseModel) -> None:
        if isinstance(event, Advanced) and event.progress is not None:
            self.said.append((event.state, str(event.progress.sentence), event.progress.fraction))

    def _cancelled(self) -> bool:
        return any(self._cancelled_at in sentence for _, sentence, _ in self.said)


def run(voice: Voice, bench: Bench | None = None, **changes: Any) -> RunInProgress:
    ceilings = made_up_ceilings(devices.facts("cpu"))
    request = ask(**changes)
    job = RunJob(id="voicevoice12", created_at="2026-01-02", request=request, ceilings=ceilings)
    return RunInProgress(job, bench or Bench(), voice.teller)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where compiled functions are kept: a folder with nothing in it yet."""
    monkeypatch.setattr(entry, "_cache_folder", lambda: tmp_path)
    return tmp_path


def test_compiling_is_told_and_timed_once(kept: Path) -> None:
    voice = Voice()
    with listening(voice.teller):
        entry.compiled(entry._count, "int8")
        took_ns = voice.teller.compiled_ns
        entry.compiled(entry._count, "int8")
    assert {sentence for _, sentence, _ in voice.said} == {
        "Compiling the kernels for int8 weights; this takes some seconds, once on this machine."
    }
    assert took_ns == voice.teller.compiled_ns > 0
    assert list(kept.rglob("*.nbi"))


def test_a_cancelled_job_does_not_wait_for_kernels(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    monkeypatch.setattr(entry, "_compiled", lambda function: may_go_on.wait(60) and 7)
    voice = Voice(cancelled_at="Compiling")
    with listening(voice.teller), pytest.raises(Stopped):
        entry.compiled(entry._count, "int8")
    may_go_on.set()
    assert entry.compiled(entry._count, "int8") == 7
    assert voice.teller.compiled_ns == 0


def test_what_compiling_raises_is_raised_to_who_waits(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(function: object) -> int:
        raise TimeoutError("no disk")

    monkeypatch.setattr(entry, "_compiled", fails)
    with listening(Voice().teller), pytest.raises(TimeoutError, match="no disk"):
        entry.compiled(entry._count, "int8")


def test_only_what_an_earlier_process_compiled_is_loaded_ahead(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, str]] = []
    one = ("int8", "bf16")
    monkeypatch.setattr(entry, "step_address", lambda weights, kv: loaded.append((weights, kv)))
    monkeypatch.setattr(entry, "_step", lambda *formats: entry._count if formats == one else entry._reading)
    entry.compiled(entry._count)
    entry.bring()
    assert loaded == [one]
    entry.bring(lambda: False)
    assert loaded == [one]


def test_compiling_and_loading_are_noted_apart(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small function stands for a whole step, which takes ten seconds to compile."""
    from engine.model import compiled

    address = compiled.step_address

    def compiling_first(kind: str, kv: str) -> int:
        entry.compiled(entry._count, kind)
        return address(kind, kv)

    compiled.step_address("fp32")
    monkeypatch.setattr(compiled, "step_address", compiling_first)
    voice, bench = Voice(), Bench()
    with listening(voice.teller):
        record = run(voice, bench).measure()
    assert record.preparation is not None
    assert record.preparation.load_ns > 0
    assert record.preparation.compile_ns == voice.teller.compiled_ns > 0
    assert any(state == "loading" and "fp32" in sentence for state, sentence, _ in voice.said)
    again = run(Voice(), bench).measure()
    assert again.preparation is not None
    assert (again.preparation.load_ns, again.preparation.compile_ns) == (0, 0)
    assert Run.model_validate_json(record.to_json()).preparation == record.preparation


def test_a_prompt_in_chunks_says_how_far_it_is() -> None:
    model, told = load("tiny-3.7m", max_tokens=64), list[int]()
    ids = torch.arange(30)[None]
    whole = model.prefill(ids, reading=told.append)
    assert told == []
    in_chunks = model.prefill(ids, rows=10, reading=told.append)
    assert told == [0, 10, 20]
    assert (whole - in_chunks).abs().max() < 1e-4


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are cut into chunks of 32 tokens at most, and not of thousands."""
    monkeypatch.setattr("engine.model.phases.chunk_lengths", lambda tokens, batch, rows: chunk_lengths(tokens, 1, 32))


def test_a_run_tells_each_chunk_in_the_warm_up_and_in_the_run(short_chunks: None) -> None:
    voice = Voice()
    record = run(voice, prompt=LONG, max_new_tokens=2).measure()
    total = record.steps[0].tokens
    assert total > 64
    for state, begin in (("warming_up", "Warming up: "), ("running", "Reading the prompt: ")):
        told = [(sentence, fraction) for said, sentence, fraction in voice.said if said == state]
        assert len(told) == -(-total // 32)
        assert told[0] == (told[0][0], 0.0)
        assert all(sentence.startswith(begin) and str(total) in sentence for sentence, _ in told)
        assert [fraction for _, fraction in told] == sorted({fraction for _, fraction in told})


@pytest.mark.parametrize("at", ["Warming up: 0", "Reading the prompt: 0"])
def test_a_cancel_ends_a_prompt_between_two_chunks(at: str, short_chunks: None) -> None:
    voice, bench = Voice(cancelled_at=at), Bench()
    going = run(voice, bench, prompt=LONG, max_new_tokens=2)
    with pytest.raises(Stopped):
        going.measure()
    record = going.close("cancelled")
    assert (record.state, record.steps) == ("cancelled", [])
    assert run(Voice(), bench, max_new_tokens=2).measure().state == "done"


@pytest.mark.parametrize("changes", [{"clock": "free-running"}, {"launches": "graph"}, {"launches": "compiled"}])
def test_what_is_for_cuda_is_refused_on_a_cpu(changes: dict[str, str]) -> None:
    with pytest.raises(LabError, match=r"is for CUDA devices.*this run is on cpu"):
        run(Voice(), device="cpu", **changes).measure()


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Runs whose device is let pass: a CPU can run freely too, though there is nothing in it."""
    monkeypatch.setattr("engine.request.check_device", lambda request, kind: None)
    bench = Bench()
    return lambda **changes: run(Voice(), bench, **changes).measure()


def test_a_free_run_leaves_the_record_of_one_that_waits(anywhere: Callable[..., Run]) -> None:
    waiting, freely = anywhere(), anywhere(clock="free-running")
    assert (freely.request.clock, freely.request.launches) == ("free-running", "eager")
    assert freely.output == waiting.output
    for one, other in zip(freely.steps, waiting.steps, strict=True):
        assert (one.token_ids, one.text, one.context, one.bytes) == (
            other.token_ids, other.text, other.context, other.bytes
        )  # fmt: skip
        assert one.resident_bytes == other.resident_bytes
        assert one.time_ns > 0
    assert freely.summary is not None
