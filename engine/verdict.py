"""The one sentence a run ends in: what a token's time went to, with its numbers.

The words are templates whose parameters are finished numbers, so that a page can say them in another
language. GB is 1e9 bytes. Which term binds is decided from the step of median time, so that every
number in a sentence belongs to one and the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.ceilings import Ceilings
from engine.errors import N_, Scalar, Sentence
from engine.judging import (
    bandwidth,
    compute_ns,
    disturbed_by,
    memory_ns,
    probe_off,
    was_busy,
)
from engine.record import Probe, Step

HELD_UP = 2.0
"""A step this many times as long as expected is not explained by anything the lab knows of it."""

# By what binds: first for one sequence, then for a batch.
_TEMPLATES = {
    "weights": (
        N_(
            "A token takes {time}; {part} of it is reading {weights} of weights; the KV cache is {kv_share}; "
            "this machine cannot read faster than {rate}."
        ),
        N_(
            "A step of {batch} tokens takes {time}; {part} of it is reading {weights} of weights, once for all of "
            "them; the KV cache is {kv_share}; this machine cannot read faster than {rate}."
        ),
    ),
    "kv": (
        N_(
            "A token takes {time}; {part} of it is reading and writing {kv} of KV cache; the weights are "
            "{weights_share}; this machine cannot read faster than {rate}."
        ),
        N_(
            "A step of {batch} tokens takes {time}; {part} of it is reading and writing {kv} of KV cache; the "
            "weights are {weights_share}; this machine cannot read faster than {rate}."
        ),
    ),
    "compute": (
        N_(
            "A token takes {time}; {part} of it is {flops} of arithmetic, and this machine was measured to do no "
            "more than {flops_rate}; moving its {bytes} would take {memory}."
        ),
        N_(
            "A step of {batch} tokens takes {time}; {part} of it is {flops} of arithmetic, and this machine was "
            "measured to do no more than {flops_rate}; moving its {bytes} would take {memory}."
        ),
    ),
    "launches": (
        N_(
            "A token takes {time}, but moving its {bytes} takes only {memory} at the {rate} this machine reads: "
            "the other {rest} go mostly into starting one small operation after another."
        ),
        N_(
            "A step of {batch} tokens takes {time}, but moving its {bytes} takes only {memory} at the {rate} this "
            "machine reads: the other {rest} go mostly into starting one small operation after another."
        ),
    ),
    "kernels": (
        N_(
            "A token takes {time}, but its bytes and its arithmetic need only {roof} on this machine: the other "
            "{rest} are lost in kernels that stay below the roof."
        ),
        N_(
            "A step of {batch} tokens takes {time}, but its bytes and its arithmetic need only {roof} on this "
            "machine: the other {rest} are lost in kernels that stay below the roof."
        ),
    ),
    "held_up": (
        N_(
            "A token takes {time}; by what was measured here before, it should take {expected}: something held the "
            "machine up, so run it again when nothing else runs."
        ),
        N_(
            "A step of {batch} tokens takes {time}; by what was measured here before, it should take {expected}: "
            "something held the machine up, so run it again when nothing else runs."
        ),
    ),
    "impossible": (
        N_(
            "A token takes {time}, less than the {roof} that its {bytes} and {flops} need at the rates measured "
            "here: measure this machine again before trusting this run."
        ),
        N_(
            "A step of {batch} tokens takes {time}, less than the {roof} that its {bytes} and {flops} need at the "
            "rates measured here: measure this machine again before trusting this run."
        ),
    ),
}

# What was seen of others' work: the control probe slower, then faster; and what they used.
_MOVED = (
    N_("The control measurement was {share} slower after the run than before it."),
    N_("The control measurement was {share} faster after the run than before it."),
)
_OFF = (
    N_("Before this run the machine was {share} slower than when it was measured."),
    N_("Before this run the machine was {share} faster than when it was measured, so measure it again."),
)
_OTHERS = N_("During this run other programs used {cores} of the processor's cores.")
_BUSY = N_("The machine was busy when it was measured, so its lines are unsure; measure it again, left alone.")
_NO_CAUSE = (
    N_("Disturbed run: a token took {time}, and what that went to cannot be said."),
    N_("Disturbed run: a step of {batch} tokens took {time}, and what that went to cannot be said."),
)


def verdict(
    steps: Sequence[Step], *, batch: int, multiplication: str, ceilings: Ceilings, probe: Probe | None = None
) -> list[Sentence]:
    """What the run shows, the answer first, then what to know before believing it.

    A disturbed run's begins with that word and names no cause: its time is others' as much as its own.
    """
    decode = sorted((step for step in steps if step.phase == "decode"), key=lambda step: step.time_ns)
    prefill = next((step for step in steps if step.phase == "prefill"), None)
    disturbances = _disturbances(probe, ceilings)
    sentences = []
    if decode:
        median = decode[len(decode) // 2]
        if disturbances and "beats_roof" not in median.flags:
            single, several = _NO_CAUSE
            params: dict[str, Scalar] = {"batch": batch, "time": duration(median.time_ns)}
            sentences.append(Sentence(template=single if batch == 1 else several, params=params))
        else:
            sentences.append(_decode_sentence(median, batch, multiplication, ceilings))
    if prefill is not None:
        sentences.append(_prefill_sentence(prefill, alone=not decode))
    if not sentences:
        sentences.append(Sentence(template=N_("The run ended before its first step was measured.")))
    return sentences + disturbances + _impossible(steps)


def _decode_sentence(step: Step, batch: int, multiplication: str, ceilings: Ceilings) -> Sentence:
    memory, compute = memory_ns(step, ceilings), compute_ns(step, ceilings, multiplication)
    roof = max(memory, compute)
    kv = step.bytes.kv_read + step.bytes.kv_write
    term = _term(step, memory, compute, kv)
    # Within the ceilings' spread a step may lie just under the roof: its parts are then shares of its own time.
    reachable = min(1.0, step.time_ns / roof)
    part = {"weights": memory * step.bytes.weights / step.bytes.total, "kv": memory * kv / step.bytes.total}
    single, several = _TEMPLATES[term]
    return Sentence(
        template=single if batch == 1 else several,
        params={
            "batch": batch,
            "time": duration(step.time_ns),
            "part": duration(part.get(term, compute) * reachable),
            "expected": duration(step.predicted_ns.expected),
            "roof": duration(roof),
            "rest": duration(step.time_ns - roof),
            "memory": duration(memory),
            "bytes": size(step.bytes.total),
            "weights": size(step.bytes.weights),
            "weights_share": percent(step.bytes.weights / step.bytes.total),
            "kv": size(kv),
            "kv_share": percent(kv / step.bytes.total),
            "rate": f"{size(bandwidth(step, ceilings))}/s",
            "flops": amount(step.flops, "FLOP"),
            "flops_rate": amount(ceilings.peak(multiplication) or 0.0, "FLOP/s"),
        },
    )


def _term(step: Step, memory: float, compute: float, kv: int) -> str:
    roof = max(memory, compute)
    if "beats_roof" in step.flags:
        return "impossible"
    if step.time_ns > HELD_UP * max(roof, step.predicted_ns.expected):
        return "held_up"
    if step.time_ns > 2 * roof:
        return "launches" if step.bound == "launches" else "kernels"
    if compute > memory:
        return "compute"
    return "kv" if kv > step.bytes.weights else "weights"


def _prefill_sentence(step: Step, *, alone: bool) -> Sentence:
    params: dict[str, Scalar] = {
        "count": step.tokens,
        "time": duration(step.time_ns),
        "each": duration(step.time_ns / max(1, step.tokens)),
    }
    if alone:
        return Sentence(
            template=N_(
                "Reading the prompt took {time}, {each} for each of its {count} tokens; no decode step was measured."
            ),
            params=params,
        )
    return Sentence(
        template=N_("Reading the prompt took {time}, {each} for each of its {count} tokens."), params=params
    )


def _impossible(steps: Sequence[Step]) -> list[Sentence]:
    sentences = []
    for flag, template in (
        (
            "beats_roof",
            N_("{count} of {steps} steps lie below the measured roof: its ceilings or the clock are wrong."),
        ),
        (
            "beats_datasheet",
            N_("{count} of {steps} steps lie below the datasheet's floor: the bytes or the clock are wrong."),
        ),
    ):
        count = sum(flag in step.flags for step in steps)
        if count:
            sentences.append(Sentence(template=template, params={"count": count, "steps": len(steps)}))
    return sentences


def measured_while_busy(ceilings: Ceilings) -> Sentence | None:
    """What to know of ceilings that were measured beside other work; None where the machine was left alone."""
    return Sentence(template=_BUSY) if was_busy(ceilings) else None


def _disturbances(probe: Probe | None, ceilings: Ceilings) -> list[Sentence]:
    found = disturbed_by(probe, ceilings)
    sentences = [Sentence(template=_BUSY)] if "busy" in found else []
    if probe is None:
        return sentences
    if "moved" in found:
        sentences.append(_of_probe(probe.moved, _MOVED))
    if "off" in found:
        sentences.append(_of_probe(probe_off(probe, ceilings), _OFF))
    if "others" in found:
        sentences.append(Sentence(template=_OTHERS, params={"cores": f"{probe.other_cores:.1f}"}))
    return sentences


def _of_probe(change: float, templates: tuple[str, str]) -> Sentence:
    slower, faster = templates
    return Sentence(template=slower if change > 0 else faster, params={"share": percent(abs(change))})


# ---- numbers as people read them -----------------------------------------------------------------


def duration(time_ns: float) -> str:
    """Nanoseconds with two or three digits in the unit that suits them: "31 ms", "4.6 ms", "830 µs"."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(time_ns) >= 0.9995 * factor:
            return f"{_digits(time_ns / factor)} {unit}"
    return f"{time_ns:.0f} ns"


def size(count: float) -> str:
    """Bytes in decimal units: "538 MB", "18 GB"."""
    return amount(count, "B")


def amount(count: float, unit: str) -> str:
    """A count with its decimal prefix: "1.1 TFLOP/s"."""
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= 0.9995 * factor:
            return f"{_digits(count / factor)} {prefix}{unit}"
    return f"{count:.0f} {unit}"


def percent(share: float) -> str:
    """A share, with a decimal below one percent."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 0.95 else f"{value:.1f} %"


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"
