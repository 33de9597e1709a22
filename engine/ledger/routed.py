"""Routed experts: what a step is expected to read of them, and its bytes once the router's real choice is known."""

from __future__ import annotations

from dataclasses import replace

from engine.ledger.ops import Amount, StepLedger, Traffic


def routed_bytes(step: StepLedger) -> Amount:
    """Bytes of routed experts in the step, by the expectation for uniform routing; 0 where there are none."""
    return step.parts["experts"]


def bytes_with_experts(step: StepLedger, read_bytes: int) -> Traffic:
    """The step's bytes with `read_bytes` of routed experts, as they were read, in place of those expected."""
    return replace(step.bytes, weights=step.bytes.weights - routed_bytes(step) + read_bytes)
