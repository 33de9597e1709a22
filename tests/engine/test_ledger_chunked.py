"""A prompt read in several passes: counted against the products that really run, and against sums over the passes."""

from __future__ import annotations

from typing import Any

import family_helpers
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch.overrides import TorchFunctionMode

from engine import catalogue, fitting, ledger, spec
from engine.chunks import PREFILL_ROWS, chunk_lengths
from engine.expected import predictor
from engine.ledger import Formats, StepLedger
from engine.model import Model
from engine.random_weights import RandomTensors

FP32 = Formats("fp32", kv="fp32")


class Products(TorchFunctionMode):
    """Every F.linear that is called: FLOPs, and bytes of the weights it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.weight_bytes = 0

    def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called is F.linear:
            rows, weight = args[0], args[1]
            self.flops += 2 * rows.shape[0] * weight.numel()
            self.weight_bytes += weight.nbytes
        return called(*args, **(kwargs or {}))


def linears(step: StepLedger) -> tuple[int, int]:
    ops = step.of_kind("linear")
    return sum(op.flops for op in ops), sum(op.bytes.weights for op in ops)


@pytest.mark.parametrize("batch", [1, 3])
def test_the_products_are_those_that_run(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_KERNELS", "torch")  # torch cannot count what it does not compute
    tiny = catalogue.load("tiny-3.7m")
    model = Model.from_tensors(tiny, RandomTensors(fitting.wanted_shapes(tiny)), max_tokens=64)
    with Products() as ran:
        model.prefill(family_helpers.tokens(batch, 50), rows=20 * batch)
    step = ledger.prefill(tiny, 50, batch=batch, formats=FP32, rows=20 * batch)
    assert linears(step) == (ran.flops, ran.weight_bytes)


def test_each_pass_reads_the_weights_and_what_came_before() -> None:
    tiny = catalogue.load("tiny-3.7m")
    at_once, in_three = (ledger.prefill(tiny, 50, formats=FP32, rows=rows) for rows in (None, 20))
    # Each of the three passes reads all layers, the last one the final norm and the head; a token reads its embedding.
    once = [op.bytes.weights for op in at_once.ops if op.name in ("embedding", "final_norm", "lm_head")]
    layers = at_once.bytes.weights - sum(once)
    assert in_three.bytes.weights == 3 * layers + sum(once)
    position = at_once.bytes.kv_write // 50
    assert in_three.bytes.kv_write == 50 * position
    assert in_three.bytes.kv_read == (16 + 33) * position  # passes of 16, 17 and 17
    assert in_three.flops == at_once.flops
    assert (in_three.tokens, in_three.context) == (50, 50)
    assert in_three.working_set_bytes < in_three.bytes.total - layers


def _step_of(kind: str, rows: int | None) -> StepLedger:
    return ledger.prefill(spec.read(family_helpers.CONFIGS[kind]().to_dict()), 83, batch=2, formats=FP32, rows=rows)


@pytest.mark.parametrize("kind", sorted(family_helpers.CONFIGS))
def test_every_familys_work_is_the_same_in_passes(kind: str) -> None:
    at_once, in_passes = _step_of(kind, None), _step_of(kind, 28)
    again = {"kv_b_proj"}  # latent attention spells the cache out in every pass
    for part in ("linear", "attention", "recurrence", "conv"):
        totals = [sum(op.flops for op in step.of_kind(part) if op.name not in again) for step in (at_once, in_passes)]
        assert totals[0] == totals[1], part


def test_states_are_handed_on_from_pass_to_pass() -> None:
    at_once, in_passes = _step_of("qwen3.5", None), _step_of("qwen3.5", 42)  # four passes
    assert at_once.bytes.state_read == at_once.bytes.conv_read == 0
    assert in_passes.bytes.state_write == 4 * at_once.bytes.state_write
    assert in_passes.bytes.state_read == 3 * at_once.bytes.state_write
    assert in_passes.bytes.conv_read == 3 * at_once.bytes.conv_write


def test_a_window_reads_no_further_back_than_it_sees() -> None:
    config = spec.read(family_helpers.CONFIGS["mistral-v0.1"]().to_dict())  # 16 positions
    position = ledger.decode(config, 2, formats=FP32).bytes.kv_read
    lengths = chunk_lengths(100, 1, 30)
    assert lengths == [25] * 4
    assert ledger.prefill(config, 100, formats=FP32, rows=30).bytes.kv_read == 3 * 15 * position


def test_the_expected_line_of_a_long_prompt_counts_its_passes() -> None:
    from records import ceilings

    demo = catalogue.load("smollm2-135m")
    lines = predictor(demo, ceilings(), None, FP32)
    long = lines.prefill(2 * PREFILL_ROWS).ledger
    assert long.bytes.weights > 1.9 * lines.prefill(PREFILL_ROWS).ledger.bytes.weights * (1 - 0.22)  # the head once
    assert lines.prefill(PREFILL_ROWS).ledger.bytes.kv_read == 0
    assert long.bytes.kv_read == long.bytes.kv_write // 2
    assert torch.isfinite(torch.tensor(lines.prefill(2 * PREFILL_ROWS).predicted_ns.expected))
