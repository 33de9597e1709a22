"""What would make a run faster, and by how much: every lever predicted from the run's own ceilings, before any run.

A forecast is a record of its own: it is stored first, and a run that pulls a lever names it. Knows no torch.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Literal

from pydantic import Field

from engine import __version__, catalogue, hardware, ledger, lookup, request, roofline
from engine.ceilings import Ceilings
from engine.errors import N_, LabError, Sentence
from engine.expected import Predictor, predictor
from engine.experiment import MOST, Experiment, Part, Timed
from engine.ledger import Formats
from engine.lookup import MOST_DRAFTS
from engine.predict import roof_of
from engine.random_shapes import PREFIX
from engine.random_shapes import read as read_random
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

Kind = Literal["weights", "kv", "batch", "context", "lookup", "device", "mixture", "hybrid"]
PULLED: tuple[Kind, ...] = ("weights", "kv", "batch", "context", "lookup")
"""Those that change the run itself: their gain is over the run's own prediction."""


class Foretold(Part):
    """A decode step and the tokens a second of all sequences, predicted."""

    step_ns: float = Field(gt=0, lt=MOST)
    tokens_per_s: float = Field(gt=0, lt=MOST)


class Lever(Part):
    """One lever. `request` is what pulls it here; None where it can only be predicted.

    gain: predicted tokens a second over the base's own prediction. drafts: tokens checked a pass, for lookup.
    """

    name: str
    kind: Kind
    what: Sentence
    rests_on: Sentence
    predicted: Foretold
    gain: float = Field(gt=0, lt=MOST)
    request: RunRequest | None = None
    drafts: int = Field(default=0, ge=0, le=MOST_DRAFTS)
    foretold_passes: int | None = Field(default=None, ge=1, le=MOST)
    foretold_acceptance: float | None = Field(default=None, ge=0, le=1)


class LeversRequest(Part):
    """The run whose levers are asked about."""

    kind: Literal["levers"] = "levers"
    model: str
    run: str
    device: str | None = None


class LeversRecord(Experiment):
    """A forecast: what each lever is predicted to give. base: the run's own step, predicted likewise."""

    kind: Literal["levers"] = "levers"
    request: LeversRequest
    base: Foretold
    base_measured: Foretold
    levers: list[Lever] = Field(default_factory=list)
    points: list[Timed] = Field(default_factory=list)


class _Base:
    """A run with decode steps and what predicts them."""

    def __init__(self, run: Run) -> None:
        decodes = [step for step in run.steps if step.phase == "decode"]
        if not decodes or run.ceilings is None or run.model is None or run.prompt is None:
            raise LabError("Run {id} has no decode step to improve; choose a run that wrote a few tokens.", id=run.id)
        self.run = run
        self.ceilings: Ceilings = run.ceilings
        self.prompt_ids = run.prompt.token_ids
        self.weights, self.kv = run.model.weight_format, run.model.kv_format
        self.dtype = run.model.dtype
        self.plain = request.DTYPES.get(self.dtype, "fp32")
        self.spec = spec_of(run.request.model, dict(run.model.config))
        middle = sorted(decodes, key=lambda step: step.context)[len(decodes) // 2]
        self.context, self.batch = middle.context, run.request.batch
        self.step_ns = statistics.median(step.predicted_ns.expected for step in decodes)
        self.measured_ns = statistics.median(step.time_ns for step in decodes)

    @property
    def formats(self) -> Formats:
        """What the run held, as the ledger names it."""
        return self.formats_with(self.weights, self.kv)

    def formats_with(self, weights: str, kv: str) -> Formats:
        """The same with other formats: of the matrices, the embedding and the head, as this engine holds them."""
        return Formats(weights, kv, "fp32", plain=self.plain, embedding=weights)

    def lines(self, *, batch: int | None = None) -> Predictor:
        """The predictor of the run's own formats."""
        return predictor(self.spec, self.ceilings, None, self.formats, batch or self.batch)

    def foretold(self, step_ns: float, *, batch: int | None = None) -> Foretold:
        """A step and its tokens a second."""
        return Foretold(step_ns=step_ns, tokens_per_s=(batch or self.batch) / step_ns * 1e9)

    @property
    def own(self) -> Foretold:
        """The run's own step, as it was expected."""
        return self.foretold(self.step_ns)

    def lever(self, predicted: Foretold, **rest: Any) -> Lever:
        """A lever of this run: its gain is over the run's own prediction."""
        return Lever(predicted=predicted, gain=predicted.tokens_per_s / self.own.tokens_per_s, **rest)

    def bandwidth_at(self, working_set_bytes: float) -> float:
        """This machine's bandwidth for a step of that size, in bytes/s."""
        return self.ceilings.bandwidth_at(working_set_bytes)


def spec_of(model: str, config: dict[str, Any]) -> Spec:
    """The dimensions of a run's model: from the catalogue, from its random name, or from the config it recorded.

    Raises:
        LabError: none of these can be read.
    """
    from engine import spec as specs

    if model in catalogue.ids():
        return catalogue.load(model)
    return read_random(model)[1] if model.startswith(PREFIX) else specs.read(config)


def forecast(run: Run) -> LeversRecord:
    """Every lever of a run, predicted now.

    Raises:
        LabError: the run has no decode step, or no ceilings to predict from.
    """
    base = _Base(run)
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


def _asked(base: _Base, **changes: object) -> RunRequest | None:
    """The run with these changes, if this engine can run it."""
    asked = base.run.request.model_copy(update=changes)
    try:
        request.check(asked)
        request.check_kv(asked.kv, asked.model, base.spec, dtype=base.dtype, device=asked.device)
    except LabError:
        return None
    return asked


def _by_bytes(base: _Base, formats: Formats) -> float:
    """The base's step less the time of the bytes that are no longer read, at this machine's bandwidth."""
    before = ledger.decode(base.spec, base.context, batch=base.batch, formats=base.formats)
    after = ledger.decode(base.spec, base.context, batch=base.batch, formats=formats)
    read = before.bytes.total / base.bandwidth_at(before.working_set_bytes)
    then = after.bytes.total / base.bandwidth_at(after.working_set_bytes)
    return float(max(then * 1e9, base.step_ns - (read - then) * 1e9))


def _in_format(base: _Base, kind: Kind, what: str, rests_on: str, format_: str, formats: Formats) -> Lever:
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


def _weights(base: _Base) -> list[Lever]:
    why = N_(
        "The step without the time of the bytes that are no longer read: the kernel for the new format may be slower "
        "or faster than that."
    )
    return [
        _in_format(base, "weights", N_("Weights in {format}"), why, each, base.formats_with(each, base.kv))
        for each in _narrower(FORMATS, base.weights)
    ]


def _kv(base: _Base) -> list[Lever]:
    why = N_("Only the cache shrinks, and at this context it is a small part.")
    return [
        _in_format(base, "kv", N_("KV cache in {format}"), why, each, base.formats_with(base.weights, each))
        for each in _narrower(KV_FORMATS, base.kv)
    ]


def _batch(base: _Base) -> Lever:
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


def _context(base: _Base) -> list[Lever]:
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


def _lookup(base: _Base) -> list[Lever]:
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


def _device(base: _Base) -> list[Lever]:
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


def _roof_ns(base: _Base, spec: Spec, formats: Formats, context: int, batch: int) -> float:
    step = ledger.decode(spec, context, batch=batch, formats=formats)
    peak = base.ceilings.peak_flops_per_s.get(formats.plain_format) or max(base.ceilings.peak_flops_per_s.values())
    return float(roofline.floor_ns(step, Roof(peak, base.bandwidth_at(step.working_set_bytes))))


def _others(base: _Base) -> list[Lever]:
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


def check(record: LeversRecord) -> None:
    """Raise LabError for the first thing in a forecast from a file that no forecast says."""
    names = [lever.name for lever in record.levers]
    if len(set(names)) < len(names):
        raise LabError("The forecast names a lever twice; each is predicted once.")
    for lever in record.levers:
        gain = lever.predicted.tokens_per_s / record.base.tokens_per_s
        if lever.kind in PULLED and not math.isclose(lever.gain, gain, rel_tol=0.01):
            raise LabError(
                "The forecast says that {name} gives {said:.2f} times the tokens; its own figures give {right:.2f}.",
                name=lever.name[:40],
                said=lever.gain,
                right=gain,
            )
        if lever.request is not None:
            request.check(lever.request)


# ---- what became of it ---------------------------------------------------------------------------


def mark(asked: RunRequest, forecast_id: str, lever: str) -> RunRequest:
    """The request that pulls a lever, with the forecast it answers in it."""
    return RunRequest.model_validate(asked.model_dump() | {"forecast": forecast_id, "lever": lever})


def marks_of(asked: RunRequest) -> tuple[str, str]:
    """The forecast and the lever a run answers; empty where it answers none."""
    extra = asked.model_extra or {}
    forecast_id, lever = extra.get("forecast"), extra.get("lever")
    return (forecast_id, lever) if isinstance(forecast_id, str) and isinstance(lever, str) else ("", "")


def miss(lever: Lever, gain: float, *, disturbed: bool = False) -> Sentence:
    """A sentence on how far the measured gain lies from the predicted one, and the likely reason.

    disturbed: others used the machine during one of the two runs.
    """
    off = gain / lever.gain - 1
    if abs(off) <= CLOSE:
        return Sentence(template=N_("As predicted, within a tenth."))
    if disturbed:
        return Sentence(
            template=N_("Other programs used the machine during one of the two runs: the difference says nothing yet.")
        )
    return Sentence(template=LESS[lever.kind] if off < 0 and lever.kind in LESS else MORE.get(lever.kind, OTHERWISE))


CLOSE = 0.1
LESS: dict[str, str] = {
    "weights": N_("Less than the bytes promise: turning the stored numbers into what is multiplied takes time too."),
    "kv": N_("Less than the bytes promise: the cache is turned into what is multiplied at every step."),
    "batch": N_("Less than predicted: the kernel for several rows does not read as fast as the one for a single row."),
    "context": N_("Less than predicted: so short a context costs next to nothing already."),
    "lookup": N_("Less than predicted: a check of several rows costs more than the pass it was reckoned as."),
}
MORE: dict[str, str] = {
    "weights": N_("More than predicted: the kernel for this format reads faster than the one the base run used."),
    "lookup": N_("More than predicted: checking several rows costs less than was reckoned."),
}
OTHERWISE = N_("More than predicted: the base run was slower than expected, or this one faster.")
