"""A whole run of other families: the record holds the router's choice and its bytes, and a state that never grows."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from family_helpers import DELTA, EXPERTS, SIZES
from service import made_up_ceilings

from engine import device as devices
from engine import ledger, spec
from engine.bench import Bench
from engine.ledger import Formats
from engine.ledger.routed import routed_bytes
from engine.protocol import RunJob
from engine.record import Run, RunRequest
from engine.run_job import RunInProgress
from engine.tell import Teller

FORMATS = Formats(weights="fp32", kv="fp32", state="fp32")


def run_of(kind: str, folder: Path, tokenizer: Path, **changes: Any) -> Run:
    """Three tokens from a tiny random model of this kind, by way of a folder, as a worker would measure it."""
    sizes = {**SIZES, "vocab_size": 49_152, **changes}
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **sizes))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    request = RunRequest(model=str(folder), prompt="Hello there, you", max_new_tokens=4, batch=2, device="cpu")
    ceilings = made_up_ceilings(devices.facts(torch.device("cpu")))
    job = RunJob(id="familyfamily", created_at="2026-01-02", request=request, ceilings=ceilings, allow_paths=True)
    return RunInProgress(job, Bench(), Teller(job.id, lambda line: None, lambda: False)).measure()


def test_a_record_holds_the_experts_that_were_read(tmp_path: Path, in_demo_home: Path, demo_folder: Path) -> None:
    run = run_of("qwen3_moe", tmp_path, demo_folder, **EXPERTS)
    assert run.state == "done"
    described = spec.from_folder(tmp_path)
    one = 3 * 48 * 24 * 4
    for step in run.steps[1:]:
        counted = ledger.decode(described, step.context, batch=2, formats=FORMATS)
        assert len(step.experts_hit) == 4
        assert all(3 <= hit <= 6 for hit in step.experts_hit)
        assert step.expected_expert_bytes == routed_bytes(counted)
        assert step.bytes.weights == counted.bytes.weights - routed_bytes(counted) + sum(step.experts_hit) * one


def test_a_record_shows_a_state_that_does_not_grow(tmp_path: Path, in_demo_home: Path, demo_folder: Path) -> None:
    run = run_of("qwen3_5_text", tmp_path, demo_folder, **DELTA)
    held = [step.resident_bytes for step in run.steps]
    assert len({(step.state, step.conv) for step in held}) == 1
    assert held[0].state == 3 * 2 * 6 * 16 * 8 * 4
    grown = [after.kv_filled - before.kv_filled for before, after in itertools.pairwise(held)]
    assert set(grown) == {2 * 2 * 32 * 4}  # one layer: keys and values of 32, for two sequences
    assert all(step.experts_hit == [] and step.bytes.state_read for step in run.steps[1:])
