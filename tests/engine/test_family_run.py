"""A whole run of other families: the record holds the router's choice and its bytes, and a state that never grows."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from family_helpers import DELTA, EXPERTS, GROUPED, LATENT, SIZES
from service import made_up_ceilings

from engine import device as devices
from engine import ledger, spec
from engine.bench import Bench
from engine.errors import LabError
from engine.ledger import Formats
from engine.ledger.routed import routed_bytes
from engine.protocol import RunJob
from engine.record import Run, RunRequest
from engine.run_job import RunInProgress
from engine.tell import Teller

FORMATS = Formats(weights="fp32", kv="fp32", state="fp32")


def run_of(kind: str, folder: Path, tokenizer: Path, *, latent: str = "absorbed", **changes: Any) -> Run:
    """Three tokens from a tiny random model of this kind, by way of a folder, as a worker would measure it."""
    sizes = {**SIZES, "vocab_size": 49_152, **changes}
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **sizes))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    request = RunRequest(
        model=str(folder), prompt="Hello there, you", max_new_tokens=4, batch=2, device="cpu", latent=latent
    )
    ceilings = made_up_ceilings(devices.facts(torch.device("cpu")))
    job = RunJob(id="familyfamily", created_at="2026-01-02", request=request, ceilings=ceilings, allow_paths=True)
    return RunInProgress(job, Bench(), Teller(job.id, lambda line: None, lambda: False)).measure()


def test_a_record_holds_the_experts_that_were_read(tmp_path: Path, in_demo_home: Path, demo_folder: Path) -> None:
    run = run_of("qwen3_moe", tmp_path, demo_folder, **EXPERTS)
    assert run.state == "done"
    described = spec.from_folder(tmp_path)
    one = 3 * 48 * 24 * 4
    for step in run.steps[1:]:
        # Greedy: the two sequences are copies, and every token of one chooses what the other's does.
        counted = ledger.decode(described, step.context, batch=2, formats=FORMATS, alike=True)
        assert len(step.experts_hit) == 4
        assert step.experts_hit == [3, 3, 3, 3]
        assert step.expected_expert_bytes == routed_bytes(counted)
        assert step.parts.experts == sum(step.experts_hit) * one
        assert step.bytes.weights == counted.bytes.weights - routed_bytes(counted) + sum(step.experts_hit) * one


def test_a_record_shows_a_state_that_does_not_grow(tmp_path: Path, in_demo_home: Path, demo_folder: Path) -> None:
    run = run_of("qwen3_5_text", tmp_path, demo_folder, **DELTA)
    held = [step.resident_bytes for step in run.steps]
    assert len({(step.state, step.conv) for step in held}) == 1
    assert held[0].state == 3 * 2 * 6 * 16 * 8 * 4
    grown = [after.kv_filled - before.kv_filled for before, after in itertools.pairwise(held)]
    assert set(grown) == {2 * 2 * 32 * 4}  # one layer: keys and values of 32, for two sequences
    assert all(step.experts_hit == [] and step.bytes.state_read for step in run.steps[1:])


def test_both_forms_of_latent_attention_write_the_same_and_move_other_bytes(
    tmp_path: Path, in_demo_home: Path, demo_folder: Path
) -> None:
    sizes = {**LATENT, **GROUPED, "q_lora_rank": 20}
    absorbed, expanded = (
        run_of("deepseek_v3", tmp_path / form, demo_folder, latent=form, **sizes)
        for form in ("absorbed", "re-expanded")
    )
    assert (absorbed.request.latent, expanded.request.latent) == ("absorbed", "re-expanded")
    assert [step.token_ids for step in absorbed.steps] == [step.token_ids for step in expanded.steps]
    first, second = absorbed.steps[-1], expanded.steps[-1]
    assert first.resident_bytes == second.resident_bytes, "both keep the latent alone"
    # 4 layers x 2 sequences x 6 heads x (12 + 8 + 10) numbers x 4 bytes for every position, spelled out and read back.
    spelled = 4 * 2 * 6 * 30 * 4 * second.context
    assert second.bytes.kv_read - first.bytes.kv_read == spelled
    assert second.bytes.kv_write - first.bytes.kv_write == spelled
    # K_h and V_h (24 -> 12 + 10, for 6 heads) are applied to every position instead of to one; and then a pair of
    # query and key costs 12 + 8 + 10 multiply-adds a head, where absorbed it costs 24 + 8 + 24.
    applied = 2 * 24 * 6 * 22 * (second.context - 1)
    assert second.flops - first.flops == 4 * 2 * (applied + 2 * 6 * (30 - 56) * second.context)
    assert first.parts.latent == first.bytes.kv_read + first.bytes.kv_write
    assert absorbed.steps[0].bytes == expanded.steps[0].bytes, "a prompt runs in one way"


def test_a_model_without_latent_attention_has_no_form_of_it(
    tmp_path: Path, in_demo_home: Path, demo_folder: Path
) -> None:
    with pytest.raises(LabError, match="has no latent attention"):
        run_of("qwen3", tmp_path, demo_folder, latent="re-expanded")
