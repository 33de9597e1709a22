"""A run in a few numbers, from its steps and the ceilings they are judged by.

Pure arithmetic: no torch, no clock, nothing fitted. The words are in `engine.verdict`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.ceilings import Ceilings
from engine.judging import bandwidth, flags, run_flags
from engine.record import Percentiles, Probe, Step, Summary
from engine.verdict import verdict

__all__ = ["flags", "run_flags", "summarise"]


def ttft_ms(steps: Sequence[Step]) -> float | None:
    """Time to the first token, in ms: prefill, sampling and detokenizing of the first output token."""
    first = next((step for step in steps if step.phase == "prefill"), None)
    return None if first is None else _whole_ns(first) / 1e6


def tpot_ms(steps: Sequence[Step]) -> Percentiles | None:
    """Time per output token, in ms: the forward pass of the decode steps, linearly interpolated percentiles."""
    times = [step.time_ns / 1e6 for step in _decode(steps)]
    if not times:
        return None
    return Percentiles(p50=percentile(times, 50), p95=percentile(times, 95), p99=percentile(times, 99))


def median_tpot_ms(steps: Sequence[Step]) -> float | None:
    """The median alone."""
    percentiles = tpot_ms(steps)
    return percentiles.p50 if percentiles else None


def decode_tokens_per_s(steps: Sequence[Step], batch: int) -> float | None:
    """Tokens of the whole batch per second of decoding, sampling and detokenizing included."""
    decode = _decode(steps)
    if not decode:
        return None
    return batch * len(decode) / (sum(_whole_ns(step) for step in decode) / 1e9)


def mbu(steps: Sequence[Step], ceilings: Ceilings) -> float | None:
    """Model bandwidth utilisation, the median over decode steps.

    Bytes of the step / its time / the best bandwidth any read kernel reached here at that working set.
    """
    shares = [step.bytes.total / (step.time_ns / 1e9) / bandwidth(step, ceilings) for step in _decode(steps)]
    return statistics.median(shares) if shares else None


def mbu_datasheet(steps: Sequence[Step], bytes_per_s: float | None) -> float | None:
    """The same against the bandwidth printed in the device's datasheet, where it has one."""
    rates = [step.bytes.total / (step.time_ns / 1e9) for step in _decode(steps)]
    return statistics.median(rates) / bytes_per_s if rates and bytes_per_s else None


def mfu_prefill(steps: Sequence[Step], ceilings: Ceilings, multiplication: str) -> float | None:
    """Model FLOP utilisation of the prefill: its FLOPs / its time / the highest rate measured here in its formats."""
    first = next((step for step in steps if step.phase == "prefill"), None)
    peak = ceilings.peak(multiplication)
    if first is None or not peak:
        return None
    return first.flops / (first.time_ns / 1e9) / peak


def median_abs_error(steps: Sequence[Step]) -> float | None:
    """How far the expected line is off, as a share of the measured time: the median over decode steps."""
    errors = [abs(step.predicted_ns.expected - step.time_ns) / step.time_ns for step in _decode(steps)]
    return statistics.median(errors) if errors else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between closest ranks (Hyndman and Fan's type 7, numpy's default)."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def summarise(
    steps: Sequence[Step],
    *,
    batch: int,
    multiplication: str,
    ceilings: Ceilings,
    probe: Probe | None = None,
    datasheet_bytes_per_s: float | None = None,
) -> Summary:
    """The summary of a run's measured steps (warm-up steps are not for here).

    Args:
        batch: sequences computed together.
        multiplication: what was computed in, as `Formats.multiplication` names it: "fp32", "bf16", "fp32 × int8".
        probe: the control probe around the run; None leaves `disturbed` unsaid.
        datasheet_bytes_per_s: the device's printed bandwidth, where it is listed.
    """
    sentences = verdict(steps, batch=batch, multiplication=multiplication, ceilings=ceilings, probe=probe)
    return Summary(
        verdict=" ".join(map(str, sentences)),
        verdict_sentences=sentences,
        ttft_ms=ttft_ms(steps),
        tpot_ms=tpot_ms(steps),
        tokens_per_s=decode_tokens_per_s(steps, batch),
        mbu=mbu(steps, ceilings),
        mbu_datasheet=mbu_datasheet(steps, datasheet_bytes_per_s),
        mfu_prefill=mfu_prefill(steps, ceilings, multiplication),
        median_abs_error=median_abs_error(steps),
        flags=run_flags(steps, probe, ceilings),
    )


def _decode(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.phase == "decode"]


def _whole_ns(step: Step) -> int:
    return step.time_ns + step.sample_ns + step.detokenize_ns
