"""A run of a checkpoint from the stand-in Hub: its record says which version it was and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from family_helpers import CONFIGS, VOCABULARY
from hub_server import Hub, reached_from
from huggingface_hub.utils._xet_progress_reporting import XetDownloadProgressReporter
from service import made_up_ceilings
from small_models import edit_config

from engine import device as devices
from engine.bench import Bench
from engine.errors import Sentence
from engine.hub_download import Download
from engine.protocol import RunJob
from engine.record import Run, RunRequest
from engine.run_job import RunInProgress
from engine.tell import Teller
from engine.tokenizer import byte_tokenizer

ID = "lab/experts"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("ROOFLINE_LAB_DEVICE", "cpu")
    yield from reached_from(tmp_path, monkeypatch)


def run(request: RunRequest) -> Run:
    """The record of a run, in this process and on ceilings that nothing was measured for."""
    job = RunJob(
        id="runrunrunrun",
        created_at="2026-01-02T03:04:05+00:00",
        request=request,
        ceilings=made_up_ceilings(devices.facts("cpu")),
        allow_paths=True,
    )
    return RunInProgress(job, Bench(), Teller(job.id, lambda event: None, lambda: False)).measure()


def test_the_record_says_which_version_ran(server: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(CONFIGS["mixtral"](), dtype=torch.float32).save_pretrained(folder)
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Model"})
    byte_tokenizer(VOCABULARY, None, ())._inner.save(str(folder / "tokenizer.json"))
    commit = server.repo(ID).publish(folder)

    record = run(RunRequest(model=ID, prompt="为什么", max_new_tokens=3))

    assert record.state == "done"
    assert record.model is not None
    assert (record.model.id, record.model.weights, record.model.revision) == (ID, "real", commit)
    assert (record.model.stored_format, record.model.weight_format) == ("fp32", "fp32")
    assert ["code of its own" in str(note) for note in record.model.notes] == [True]
    assert record.prompt is not None
    assert record.prompt.token_ids == list("为什么".encode())
    assert len(record.steps) == 3
    assert Run.model_validate_json(record.to_json()) == record


@pytest.mark.usefixtures("in_demo_home")
def test_the_record_of_random_weights_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_DEVICE", "cpu")
    record = run(RunRequest(model="random:openai-community/gpt2@layers=01", prompt="hi", max_new_tokens=2))
    assert record.model is not None
    assert (record.model.weights, record.model.stored_format, record.model.revision) == ("random", None, None)
    assert ["the text means nothing" in str(note) for note in record.model.notes] == [True]


def test_bytes_that_come_by_xet_are_told_once(server: Hub) -> None:
    """The library shows two bars for one file there: bytes on the wire, and bytes written."""
    told: list[float | None] = []

    def tell(sentence: Sentence, fraction: float | None) -> None:
        told.append(fraction)

    download = Download(ID, "main", tell)
    download.expect({"model.safetensors": 1_000})
    reporter = XetDownloadProgressReporter(
        reconstruction_desc="writing", total=1_000, log_level=0, tqdm_class=download._bar_class()
    )
    for done in (250, 500):
        report = {"total_bytes_completed": done, "total_transfer_bytes_completed": done, "total_bytes": 1_000}
        rates = {"total_bytes_completion_rate": 1.0, "total_transfer_bytes_completion_rate": 1.0}
        reporter.update_progress(SimpleNamespace(**report, **rates))
    reporter.close()
    assert told[-1] == 0.5
