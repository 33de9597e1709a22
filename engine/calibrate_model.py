"""What one model's own ops reach on this machine: the points the expected line is a sum of.

Walks dry steps of the model's shape (`engine.dry_step`, and `engine.calibrate_parts` for layers of other kinds): decode
at several contexts and batches, prefill at doubling lengths, in turn. What is kept is the median over the walks and
its spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import torch

from engine import device as devices
from engine import ledger
from engine.calibrate_parts import walk_parts
from engine.ceilings import Ceilings, ControlPoint, ControlRates, LinearPoint, SmallOpPoint, multiplication
from engine.control import Control
from engine.dry_step import Case, DryModel
from engine.errors import N_
from engine.hardware_device import TORCH_NAMES
from engine.laps import OpKey
from engine.measure import Progress, ShouldStop, Timing, part, summarise
from engine.model import supported
from engine.own_reading import raise_bandwidth
from engine.points import COVERS
from engine.spec import Spec
from engine.walks import WALK_S, cache_room, cases, walk_all

Point = TypeVar("Point", LinearPoint, SmallOpPoint)

ROWS = tuple(2**power for power in range(12))  # 1 .. 2048
BUDGET_S = 14.0

MEASURING_MODEL = N_("Measuring this model's own shapes")


def for_model(
    ceilings: Ceilings,
    spec: Spec,
    dtype: str,
    rows: Iterable[int] = ROWS,
    progress: Progress = lambda sentence, fraction: None,
    *,
    budget_s: float = BUDGET_S,
    should_stop: ShouldStop = lambda: False,
    weights: str | None = None,
    kv: str | None = None,
) -> Ceilings:
    """Ceilings with the points of one more model and dtype; those it had of the same model are replaced.

    Args:
        dtype: "fp32" or "bf16" (torch's names work too).
        rows: prompt lengths to walk; 1 is decode. Lengths beyond the model's context are left out.
        budget_s: about how long to measure.
        weights, kv: the formats of matrices and of the cache where they are not `dtype` (dense decoders only).

    Raises:
        LabError: the engine does not run this family.
        engine.measure.Stopped: `should_stop` said so; asked before every walk.
    """
    supported.check(spec)
    dtype = TORCH_NAMES.get(dtype, dtype)
    device = torch.device(ceilings.device.kind)
    devices.use_threads(ceilings.device.threads)
    plain = supported.is_plain(spec)
    walk = partial(_walk_plain, weights=weights, kv=kv) if plain else walk_parts
    on_share, control = part(progress, MEASURING_MODEL, 0.0, 1.0), Control()
    with torch.inference_mode():
        samples = walk(
            ceilings,
            spec,
            dtype,
            device,
            rows,
            budget_s=budget_s,
            control=control,
            on_share=on_share,
            should_stop=should_stop,
        )
    on_share(1.0)
    timings = {key: summarise(values) for key, values in samples.items()}
    read = weight_bytes(spec, dtype, weights)
    found = _with_points(ceilings, dtype, weights, read, timings, {} if plain else COVERS)
    found = _with_control(found, dtype, read, control.rates())
    step = ledger.decode(spec, 1, formats=ledger.Formats.engine(dtype, weights))
    return raise_bandwidth(found, step, dtype, read)


def _walk_plain(
    ceilings: Ceilings,
    spec: Spec,
    dtype: str,
    device: torch.device,
    rows: Iterable[int],
    *,
    budget_s: float,
    control: Control,
    on_share: Callable[[float], None],
    should_stop: ShouldStop,
    weights: str | None,
    kv: str | None,
) -> dict[OpKey, list[float]]:
    """Samples by op of a dense decoder."""
    held = _layers_that_fit(spec, dtype, device)
    model = DryModel(spec, devices.DTYPES[dtype], device, layers=held, weights=weights, kv=kv)
    if model.most_compiled_rows:  # the first prompt that other kernels read is measured beside the last of these
        rows = {*rows, model.most_compiled_rows + 1}
    wanted = cases(spec, rows, kv_bytes_per_position=model.kv_bytes_per_position, cache_bytes=cache_room(device))
    layers = {case: layers_to_walk(case, ceilings, spec, dtype, held) for case in wanted}
    beside = control if held == spec.num_layers else Control()  # reading a part says nothing of the whole
    return walk_all(
        model, wanted, layers, budget_s=budget_s, control=beside, on_share=on_share, should_stop=should_stop
    )


def weight_bytes(spec: Spec, dtype: str, weights: str | None = None) -> int:
    """Bytes of weights one decode step reads: the working set its ops are timed in. `weights`: where not `dtype`."""
    if weights is not None and weights != dtype:
        step = ledger.decode(spec, 1, formats=ledger.Formats.engine(dtype, weights))
        return int(step.bytes.weights - sum(op.bytes.weights for op in step.of_kind("embedding")))
    read = spec.parameters.matmul_all + spec.parameters.hidden_norms
    return read * devices.DTYPES[dtype].itemsize


def _layers_that_fit(spec: Spec, dtype: str, device: torch.device) -> int:
    """How many layers half of the free memory holds beside embedding and head; at least one."""
    itemsize = devices.DTYPES[dtype].itemsize
    outside = 2 * spec.parameters.embedding * itemsize
    one = weight_bytes(spec, dtype) // spec.num_layers
    return max(1, min(spec.num_layers, (devices.free_bytes(device) // 2 - outside) // one))


def layers_to_walk(case: Case, ceilings: Ceilings, spec: Spec, dtype: str, held: int) -> int:
    """As many of the layers held as the roof lets pass in `WALK_S`; at least one."""
    parameters = (spec.parameters.matmul_all - spec.parameters.embedding) / spec.num_layers
    read_s = parameters * devices.DTYPES[dtype].itemsize / ceilings.bandwidth_at(weight_bytes(spec, dtype))
    compute_s = 2 * case.rows * parameters / ceilings.peak_flops_per_s.get(dtype, 1e9)
    return max(1, min(held, int(WALK_S / max(read_s, compute_s))))


def _with_control(ceilings: Ceilings, dtype: str, working_set_bytes: int, rates: ControlRates | None) -> Ceilings:
    """The ceilings with the control readings taken beside these points, in place of earlier ones."""
    controls = [p for p in ceilings.controls if (p.dtype, p.working_set_bytes) != (dtype, working_set_bytes)]
    if rates is not None:
        controls.append(ControlPoint(**rates.model_dump(), dtype=dtype, working_set_bytes=working_set_bytes))
    return ceilings.model_copy(update={"controls": controls})


def _unlike(point: LinearPoint | SmallOpPoint, forms: set[str]) -> bool:
    """Whether it is of attention in none of these forms."""
    return isinstance(point, SmallOpPoint) and point.kind == "attention" and point.form not in forms


def _with_points(
    ceilings: Ceilings,
    dtype: str,
    weights: str | None,
    working_set_bytes: int,
    timings: dict[OpKey, Timing],
    covers: Mapping[str, tuple[str, ...]],
) -> Ceilings:
    """The ceilings with these points in place of those of the same dtype and working set.

    Attention over a cache in another format stays: it was not timed this time.
    """
    forms = {key.form for key in timings if key.kind == "attention"}

    def others(points: list[Point]) -> list[Point]:
        return [p for p in points if (p.dtype, p.working_set_bytes) != (dtype, working_set_bytes) or _unlike(p, forms)]

    linear = [
        LinearPoint(
            k=key.k,
            n=key.n,
            dtype=dtype,
            rows=key.rows,
            time_ns=timing.time_ns,
            spread=timing.spread,
            working_set_bytes=working_set_bytes,
            weights=weights or "",
        )
        for key, timing in timings.items()
        if key.kind == "linear"
    ]
    small = [
        SmallOpPoint(
            kind=key.kind,
            width=key.width,
            dtype=dtype,
            rows=key.rows,
            time_ns=timing.time_ns,
            spread=timing.spread,
            working_set_bytes=working_set_bytes,
            batch=key.batch,
            context=key.context,
            kv_width=key.kv_width,
            distinct=key.distinct,
            form=key.form,
            covers=list(covers.get(key.kind, ())),
        )
        for key, timing in timings.items()
        if key.kind != "linear"
    ]
    # A matrix product of the model's own that beats the square ones is this machine's peak, in its own formats.
    name = multiplication(dtype, weights)
    peak = max((point.flops_per_s for point in linear), default=0.0)
    peaks = ceilings.peak_flops_per_s | ({name: peak} if peak > (ceilings.peak(name) or 0.0) else {})
    return ceilings.model_copy(
        update={
            "linear": others(ceilings.linear) + linear,
            "small_ops": others(ceilings.small_ops) + small,
            "peak_flops_per_s": peaks,
        }
    )
