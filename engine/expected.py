"""The three lines of a step, worked out before the run from ceilings measured apart from it. No torch.

1. datasheet: whole-step max(FLOPs / datasheet peak, bytes / datasheet bandwidth), where the device is listed.
2. measured roof: the same with this machine's peak and its bandwidth at the step's working set.
3. expected: the sum over the ledger's ops. An op takes the time measured for its shape in place (its launch
   included), but never less than its own share of the roof; an op that was never measured takes its roof and a launch.
   Of routed experts, as many are read as uniform routing is expected to hit.

Nothing here may look at a run: the lines are drawn first, and the run is compared with them. Line 3 is scaled by the
control readings taken before the run (`engine.present`), where there are any; lines 1 and 2 are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from engine import ledger
from engine.ceilings import Ceilings
from engine.chunks import PREFILL_ROWS
from engine.hardware_device import TORCH_NAMES, Device
from engine.ledger import Formats, Op, StepLedger
from engine.ledger.convention import with_latent
from engine.points import Points, point_kind
from engine.present import AS_MEASURED, Present
from engine.record import PredictedNs
from engine.spec import Spec

Bound = Literal["memory", "compute", "launches"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One step, predicted. `ledger` is what was counted, `predicted_ns` the three lines.

    memory_ns, compute_ns: the step's bytes and FLOPs at this machine's ceilings; the larger is the roof.
    launches_ns: the part of `expected` that starting the ops takes, whatever their size.
    bound: the largest of the three.
    """

    ledger: StepLedger
    predicted_ns: PredictedNs
    memory_ns: float
    compute_ns: float
    launches_ns: float

    @property
    def bound(self) -> Bound:
        """What the step mostly waits for."""
        terms: dict[Bound, float] = {
            "memory": self.memory_ns,
            "compute": self.compute_ns,
            "launches": self.launches_ns,
        }
        return max(terms, key=lambda term: terms[term])


class Predictor:
    """The lines of every step of one model at one batch. Build and ask it before the run; answers are kept.

    alike: the sequences will be copies of one another, as one prompt's are where the likeliest token is always taken.
    latent: how a decode step reads the cache of latent attention; a prompt's is spelled out either way.
    now: the machine beside what it was when the ceilings were measured.
    """

    def __init__(
        self,
        spec: Spec,
        ceilings: Ceilings,
        device: Device | None = None,
        *,
        formats: Formats,
        batch: int = 1,
        alike: bool = False,
        latent: Literal["absorbed", "re-expanded"] = "absorbed",
        now: Present = AS_MEASURED,
    ) -> None:
        self._spec = spec
        self._ceilings = ceilings
        self._device = device
        self._formats = formats
        self._batch = batch
        self._alike = alike
        self._latent = with_latent(latent)
        self._now = now
        weights = ledger.decode(spec, 1, formats=formats).bytes.weights
        form = latent if formats.kv == formats.plain_format else formats.kv
        self._points = Points(ceilings, formats.plain_format, weights, form)
        self.prefill = cache(self._prefill)
        self.decode = cache(self._decode)

    def prepare(self, prompt_tokens: int, new_tokens: int) -> None:
        """Work out every step of a run of this size: one prefill and `new_tokens` - 1 decode steps."""
        self.prefill(prompt_tokens)
        for context in range(prompt_tokens + 1, prompt_tokens + new_tokens):
            self.decode(context)

    def _prefill(self, tokens: int) -> Prediction:
        return self._predict(
            ledger.prefill(
                self._spec,
                tokens,
                batch=self._batch,
                formats=self._formats,
                alike=self._alike,
                rows=PREFILL_ROWS,
            )
        )

    def _decode(self, context: int) -> Prediction:
        """`context`: positions attended, the new token included."""
        return self._predict(
            ledger.decode(
                self._spec,
                context,
                batch=self._batch,
                formats=self._formats,
                convention=self._latent,
                alike=self._alike,
            )
        )

    def _predict(self, step: StepLedger) -> Prediction:
        return predict_step(
            step,
            self._ceilings,
            self._formats.plain_format,
            self._device,
            self._points,
            multiplication=self._formats.multiplication,
            now=self._now,
        )


def predictor(
    spec: Spec,
    ceilings: Ceilings,
    device: Device | None,
    formats: Formats,
    batch: int = 1,
    *,
    alike: bool = False,
    latent: Literal["absorbed", "re-expanded"] = "absorbed",
    now: Present = AS_MEASURED,
) -> Predictor:
    """The lines of every step of one model. `device` is the listed device for the datasheet line, or None."""
    return Predictor(spec, ceilings, device, formats=formats, batch=batch, alike=alike, latent=latent, now=now)


def predict_step(
    step: StepLedger,
    ceilings: Ceilings,
    dtype: str,
    device: Device | None = None,
    points: Points | None = None,
    *,
    multiplication: str = "",
    now: Present = AS_MEASURED,
) -> Prediction:
    """The three lines of one step computed in `dtype` ("fp32", "bf16"; torch's names work too).

    points: the measured points to price ops with; None takes those nearest to the step's weight bytes.
    multiplication: what ceilings call it, where matrices are held in another format.
    now: the machine beside what it was when the ceilings were measured.
    """
    dtype = TORCH_NAMES.get(dtype, dtype)
    fastest = multiplication or dtype
    memory_ns, compute_ns = _roof_terms(step.bytes.total, step.flops, step.working_set_bytes, ceilings, fastest)
    priced = _price(step, ceilings, fastest, points or Points(ceilings, dtype, step.bytes.weights))
    scale = now.scale(memory_ns, compute_ns)
    return Prediction(
        ledger=step,
        predicted_ns=PredictedNs(
            datasheet=datasheet_ns(step, device, dtype) if device else None,
            measured_roof=max(memory_ns, compute_ns),
            expected=max(memory_ns, compute_ns, scale * sum(op_ns for op_ns, _ in priced)),
        ),
        memory_ns=memory_ns,
        compute_ns=compute_ns,
        launches_ns=scale * sum(launch_ns for _, launch_ns in priced),
    )


def expected_ns(step: StepLedger, ceilings: Ceilings, dtype: str) -> float:
    """The third line of one step, in nanoseconds."""
    return predict_step(step, ceilings, dtype).predicted_ns.expected


def datasheet_ns(step: StepLedger, device: Device, dtype: str) -> float | None:
    """The first line of one step, in nanoseconds; None where the datasheet has no rate for this dtype."""
    peak = device.peak_flops_per_s(dtype)
    if peak is None:
        return None
    return float(max(step.flops / peak, step.bytes.total / device.bandwidth_bytes_per_s) * 1e9)


def _roof_terms(
    moved_bytes: float, flops: float, working_set_bytes: float, ceilings: Ceilings, multiplication: str
) -> tuple[float, float]:
    """Nanoseconds to move the bytes and to do the FLOPs at this machine's measured ceilings."""
    return ceilings.moving_ns(moved_bytes, working_set_bytes), ceilings.computing_ns(flops, multiplication)


def _price(step: StepLedger, ceilings: Ceilings, multiplication: str, points: Points) -> list[tuple[float, float]]:
    """For each op of the step, all its occurrences: its time, and the part of it that is starting it.

    Ops that were timed together with another are in the other's time.
    """
    priced = []
    for op in step.ops:
        if op.name in points.covered:
            continue
        roof = max(_roof_terms(op.bytes.total, op.flops, step.working_set_bytes, ceilings, multiplication))
        measured = points.op_ns(op, step)
        if measured is None:
            launches = op.count * ceilings.launch_ns
            priced.append((roof + launches, launches))
        else:
            op_ns = max(op.count * measured, roof)
            priced.append((op_ns, min(op_ns, op.count * _start_ns(op, points, ceilings))))
    return priced


def _start_ns(op: Op, points: Points, ceilings: Ceilings) -> float:
    """What one occurrence costs before it has anything to do: a launch for a linear, else the op at its smallest."""
    if op.kind == "linear":
        return ceilings.launch_ns
    if op.kind == "attention":
        return points.decode_attention_ns(1, 1) or ceilings.launch_ns
    return points.between_ns(point_kind(op), 1, 1) or ceilings.launch_ns
