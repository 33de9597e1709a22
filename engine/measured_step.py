"""A step as it is recorded: what was measured, beside what was predicted of it before."""

from __future__ import annotations

from engine.expected import Prediction
from engine.generate import RawStep
from engine.ledger.routed import bytes_with_experts, routed_bytes
from engine.model import Model
from engine.record import ResidentBytes, Step, StepBytes, StepParts


def measured_step(
    raw: RawStep,
    predicted: Prediction,
    model: Model,
    resident_weight_bytes: int,
    text: str = "",
    detokenize_ns: int = 0,
) -> Step:
    """One step of a run, without its flags. text: what it wrote, and how long making that of its tokens took.

    Of a mixture's experts those count that the router chose in this step, not those that were expected.
    """
    held, expected = raw.held, routed_bytes(predicted.ledger)
    return Step(
        index=raw.index,
        phase=raw.phase,
        tokens=raw.tokens,
        context=raw.context,
        token_ids=raw.token_ids,
        time_ns=raw.time_ns,
        host_ns=raw.host_ns,
        sample_ns=raw.sample_ns,
        detokenize_ns=detokenize_ns,
        flops=predicted.ledger.flops,
        bytes=StepBytes(**bytes_with_experts(predicted.ledger, model.expert_bytes).as_dict()),
        parts=StepParts(**predicted.ledger.parts | {"experts": model.expert_bytes}),
        working_set_bytes=predicted.ledger.working_set_bytes - expected + model.expert_bytes,
        experts_hit=list(model.experts_hit),
        expected_expert_bytes=expected,
        resident_bytes=ResidentBytes(
            weights=resident_weight_bytes,
            kv_allocated=held.kv_allocated,
            kv_filled=held.kv_filled,
            state=held.state,
            conv=held.conv,
        ),
        predicted_ns=predicted.predicted_ns,
        bound=predicted.bound,
        text=text,
    )
