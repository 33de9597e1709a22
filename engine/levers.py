"""What would make a run faster, and by how much: every lever predicted from the run's own ceilings, before any run.

A forecast is a record of its own: it is stored first, and a run that pulls a lever names it. Knows no torch.
"""

from __future__ import annotations

from typing import Any

from engine import __version__, catalogue, hardware, ledger, lookup, request, roofline
from engine.errors import N_, LabError, Sentence
from engine.expected import Predictor
from engine.ledger import Formats
from engine.lever_base import Base
from engine.lever_record import Foretold, Kind, Lever, LeversRecord, LeversRequest
from engine.predict import roof_of
from engine.record import Run, RunRequest, new_run_id, now
from engine.roofline import Roof
from engine.spec import Spec

BATCH = 8
DRAFTS = 5
FORMATS = ("bf16", "int8", "int4")
KV_FORMATS = ("bf16", "int8")
_BITS = {"fp32": 32, "bf16": 16, "int8": 8, "int4": 4}
CARD = "h100-sxm"
DENSE, MIXTURE, HYBRID = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.8-27B"
LONG_CONTEXT, MANY = 32_768, 8


def forecast(run: Run) -> LeversRecord:
    """Every lever of a run, predicted now.

    Raises:
        LabError: the run has no decode step, or no ceilings to predict from.
    """
    base = Base(run)
    levers = [
        *_weights(base),
        *_kv(base),
        _batch(base),
        *_context(base),
        *_lookup(base),
        *_device(base),
        *_others(base),
    ]
    return LeversRecord(
        schema=1,
        id=new_run_id(),
        state="done",
        created_at=now(),
        package_version=__version__,
        device=run.device,
        request=LeversRequest(model=run.request.model, run=run.id),
        base=base.own,
        base_measured=base.foretold(base.measured_ns),
        levers=levers,
    )


def _asked(base: Base, **changes: object) -> RunRequest | None:
    """The run with these changes, if this engine can run it."""
    asked = base.run.request.model_copy(update=changes)
    try:
        request.check(asked)
        request.check_kv(asked.kv, asked.model, base.spec, dtype=base.dtype, device=asked.device)
    except LabError:
        return None
    return asked


def _by_bytes(base: Base, formats: Formats) -> float:
    """The base's step less the time of the bytes that are no longer read, at this machine's bandwidth."""
    before = ledger.decode(base.spec, base.context, batch=base.batch, formats=base.formats)
    after = ledger.decode(base.spec, base.context, batch=base.batch, formats=formats)
    read = before.bytes.total / base.bandwidth_at(before.working_set_bytes)
    then = after.bytes.total / base.bandwidth_at(after.working_set_bytes)
    return float(max(then * 1e9, base.step_ns - (read - then) * 1e9))


def _in_format(base: Base, kind: Kind, what: str, rests_on: str, format_: str, formats: Formats) -> Lever:
    """The run with its matrices or its cache in another format; `what` has a blank for its name."""
    return base.lever(
        base.foretold(_by_bytes(base, formats)),
        name=f"{kind}-{format_}",
        kind=kind,
        what=Sentence(template=what, params={"format": format_}),
        rests_on=Sentence(template=rests_on),
        request=_asked(base, dtype=base.dtype, **{kind: format_}),
    )


def _narrower(formats: tuple[str, ...], held: str) -> list[str]:
    """Those of fewer bits than what is held: a wider one would be no lever."""
    return [each for each in formats if _BITS[each] < _BITS.get(held.partition("-")[0], 32)]


def _weights(base: Base) -> list[Lever]:
    why = N_(
        "The step without the time of the bytes that are no longer read: the kernel for the new format may be slower "
        "or faster than that."
    )
    return [
        _in_format(base, "weights", N_("Weights in {format}"), why, each, base.formats_with(each, base.kv))
        for each in _narrower(FORMATS, base.weights)
    ]


def _kv(base: Base) -> list[Lever]:
    why = N_("Only the cache shrinks, and at this context it is a small part.")
    return [
        _in_format(base, "kv", N_("KV cache in {format}"), why, each, base.formats_with(base.weights, each))
        for each in _narrower(KV_FORMATS, base.kv)
    ]


def _batch(base: Base) -> Lever:
    batch = BATCH if base.batch < BATCH else 2 * base.batch
    step_ns = base.lines(batch=batch).decode(base.context).predicted_ns.expected
    return base.lever(
        base.foretold(step_ns, batch=batch),
        name=f"batch-{batch}",
        kind="batch",
        what=Sentence(template=N_("A batch of {batch}"), params={"batch": batch}),
        rests_on=Sentence(
            template=N_("The sequences share each reading of the weights. More tokens a second in all, not for one "
                        "reader.")
        ),
        request=_asked(base, batch=batch),
    )  # fmt: skip


def _context(base: Base) -> list[Lever]:
    """Half of the prompt: its later half, which is what the answer goes on from."""
    words = base.run.request.prompt
    if len(base.prompt_ids) < 16:
        return []
    shorter = base.context - len(base.prompt_ids) // 2
    step_ns = base.lines().decode(shorter).predicted_ns.expected
    return [
        base.lever(
            base.foretold(step_ns),
            name="context-half",
            kind="context",
            what=Sentence(template=N_("Half of the prompt, a context of {context}"), params={"context": shorter}),
            rests_on=Sentence(template=N_("Fewer positions to attend and to read; the weights stay what they are.")),
            request=_asked(base, prompt=words[len(words) // 2 :]),
        )
    ]


def check_ns(lines: Predictor, rows: int, context: int) -> float:
    """One reading of the weights that checks `rows` tokens, the last of them at `context` positions.

    That of a prompt of so many tokens, and what the positions before it add to a decode step.
    """
    whole: float = lines.decode(context).predicted_ns.expected
    if rows == 1:
        return whole
    alone: float = lines.prefill(rows).predicted_ns.expected
    short: float = lines.decode(rows).predicted_ns.expected
    return alone + max(0.0, whole - short)


def _lookup(base: Base) -> list[Lever]:
    run = base.run
    if run.request.temperature > 0 or base.batch > 1 or len(run.output.token_ids) < 3 or base.kv != base.plain:
        return []
    checks = lookup.foretell(base.prompt_ids, run.output.token_ids, DRAFTS)
    lines = base.lines()
    total_ns = sum(check_ns(lines, check.rows, check.context) for check in checks)
    tokens = sum(check.gained for check in checks)
    return [
        base.lever(
            Foretold(step_ns=total_ns / tokens, tokens_per_s=tokens / total_ns * 1e9),
            name="lookup",
            kind="lookup",
            what=Sentence(
                template=N_("Speculative decoding: up to {drafts} tokens looked up in the text and checked at once"),
                params={"drafts": DRAFTS},
            ),
            rests_on=Sentence(
                template=N_("The answer is known, so the checks are too: {passes} readings for {tokens} tokens. A "
                            "check of several rows costs more than a step where the machine has no flat start."),
                params={"passes": len(checks), "tokens": tokens},
            ),
            request=run.request,
            drafts=DRAFTS,
            foretold_passes=len(checks),
            foretold_acceptance=lookup.acceptance(checks),
        )
    ]  # fmt: skip


# ---- predicted only ------------------------------------------------------------------------------


def _device(base: Base) -> list[Lever]:
    """The lesson's card, by its data sheet."""
    card = hardware.load(CARD)
    try:
        roof = roof_of(card, base.formats)[0]
    except LabError:
        return []
    step = ledger.decode(base.spec, base.context, batch=base.batch, formats=base.formats)
    predicted = base.foretold(roofline.floor_ns(step, roof))
    return [
        Lever(
            name=CARD,
            kind="device",
            what=Sentence(template=N_("Another device: {device}"), params={"device": card.name}),
            rests_on=Sentence(
                template=N_("By the data sheet, at best, against this machine's roof. A model this small would wait "
                            "for launches there.")
            ),
            predicted=predicted,
            gain=_roof_ns(base, base.spec, base.formats, base.context, base.batch) / predicted.step_ns,
        )
    ]  # fmt: skip


def _roof_ns(base: Base, spec: Spec, formats: Formats, context: int, batch: int) -> float:
    step = ledger.decode(spec, context, batch=batch, formats=formats)
    peak = base.ceilings.peak_flops_per_s.get(formats.plain_format) or max(base.ceilings.peak_flops_per_s.values())
    return float(roofline.floor_ns(step, Roof(peak, base.bandwidth_at(step.working_set_bytes))))


def _others(base: Base) -> list[Lever]:
    """Models built otherwise, from the catalogue, on this machine's roof: what the build alone is worth."""

    def roof(model: str, context: int, batch: int) -> float:
        spec = catalogue.load(model)
        return _roof_ns(base, spec, Formats.own(spec), context, batch)

    def other(kind: Kind, model: str, context: int, batch: int, what: str, why: str) -> Lever:
        dense, now_ns = roof(DENSE, context, batch), roof(model, context, batch)
        params: dict[str, Any] = {"model": model, "dense": DENSE, "context": f"{context:,}", "batch": batch}
        return Lever(
            name=kind,
            kind=kind,
            what=Sentence(template=what, params=params),
            rests_on=Sentence(template=why),
            predicted=Foretold(step_ns=now_ns, tokens_per_s=batch / now_ns * 1e9),
            gain=dense / now_ns,
        )

    return [
        other(
            "mixture",
            MIXTURE,
            4096,
            1,
            N_("A mixture of experts: {model} instead of {dense}"),
            N_("Of about as many parameters each token reads a tenth. In a batch the tokens choose different experts, "
               "and the gain shrinks."),
        ),
        other(
            "hybrid",
            HYBRID,
            LONG_CONTEXT,
            MANY,
            N_("A hybrid with a fixed state: {model} instead of {dense}, context {context}, batch {batch}"),
            N_("Three layers in four keep a state that does not grow with the context."),
        ),
    ]  # fmt: skip
