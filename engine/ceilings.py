"""What this machine was measured to reach, apart from any run: Ceilings, and how to read them.

Filled by `engine.calibrate` inside the worker, kept by the store, read by the roofline and the pages.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]


def multiplication(dtype: str, weights: str | None) -> str:
    """What ceilings call a product: "fp32", or "fp32 × int8" where the matrix is held in int8."""
    return f"{dtype} × {weights}" if weights and weights != dtype else dtype


def _computed_in(multiplication: str) -> str:
    """The dtype in such a name."""
    return multiplication.partition(" ")[0]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class DeviceFacts(_Facts):
    """The device and software that ran, as found. `hardware_id` is its file in hardware_specs, if it has one."""

    kind: str
    name: str
    hardware_id: str | None = None
    threads: int
    kernels: dict[str, str] = {}
    memory_bytes: int | None = None
    cores: int | None = None
    cache_bytes: dict[str, int] = {}
    torch_version: str
    python_version: str = ""
    platform: str = ""
    cpu_capability: str = ""


class BandwidthPoint(_Facts):
    """Read bandwidth over one working set. `bytes_per_s` is the best kernel's median; `by_kernel` has every one.

    `spread` is half the interquartile range over the median.
    """

    working_set_bytes: int
    bytes_per_s: Positive
    spread: float
    by_kernel: dict[str, float] = {}


class LinearPoint(_Facts):
    """`rows` x [k, n] multiplied in `dtype`: median time of the call, its launch included, and spread.

    `working_set_bytes` is what one step of that model reads in all: between two uses of a weight the caches see
    the rest of it, so the same shape costs less in a small model than in a large one. `weights` is the format of the
    matrix where that is not `dtype`.
    """

    k: int
    n: int
    dtype: str
    rows: int
    time_ns: Positive
    spread: float
    working_set_bytes: int = 0
    weights: str = ""

    @property
    def multiplication(self) -> str:
        """What it multiplies."""
        return multiplication(self.dtype, self.weights)

    @property
    def flops_per_s(self) -> float:
        """2 k n FLOPs a row over the measured time."""
        return 2.0 * self.rows * self.k * self.n / (self.time_ns * 1e-9)


class SmallOpPoint(_Facts):
    """One of the ops between the linears, timed with this engine's own function at one model's width.

    `time_ns` at `rows` rows of `width` elements, its launch included. Attention (width: all query heads) also says
    how many sequences share the rows, how many positions each attends, and the width of all key heads; a recurrence
    how many sequences; experts how many `distinct` ones the rows hit together. `covers` names the ledger's ops that
    were timed together with this one. `form` is latent attention's, where it has two, and elsewhere the format of a
    KV cache that is narrower than what is computed in.
    """

    kind: str
    width: int
    dtype: str
    rows: int
    time_ns: Positive
    spread: float
    working_set_bytes: int = 0
    batch: int = 0
    context: int = 0
    kv_width: int = 0
    distinct: int = 0
    form: str = ""
    covers: list[str] = []


class ControlRates(_Facts):
    """What the control readings gave (`engine.control`): reading weights where they lie, and one fixed product.

    read_chance, multiplied_chance: by how much one reading differs from the next for no lasting reason, as a standard
    deviation of its logarithm (`engine.present.chance`).
    """

    read_bytes_per_s: Positive
    multiplied_flops_per_s: Positive
    read_chance: float = Field(default=0.0, ge=0)
    multiplied_chance: float = Field(default=0.0, ge=0)


class ControlPoint(ControlRates):
    """The same beside the walks that one model's points in `dtype` come from."""

    dtype: str
    working_set_bytes: int = Field(ge=0)


class Ceilings(_Facts):
    """This machine's measured limits. Everything a prediction may use; nothing from a run.

    peak_flops_per_s: by what is multiplied, "fp32" or, where a model's matrices in int8 went faster than that,
    "fp32 × int8".
    controls: the control readings beside each model's points, for comparing with the same before a run.
    peak_spread: the largest of `peak_spreads`, which older records do not have.
    probe_moved: how much slower the control probe was after measuring than before. other_cores: how many cores' worth
    of work others did meanwhile. Both say whether the machine was quiet (`engine.judging.was_busy`).
    """

    id: str
    measured_at: str
    device: DeviceFacts
    bandwidth: list[BandwidthPoint]
    peak_flops_per_s: dict[str, float]
    peak_spread: float = 0.0
    peak_spreads: dict[str, float] = {}
    launch_ns: Positive
    launch_spread: float = 0.0
    linear: list[LinearPoint] = []
    small_ops: list[SmallOpPoint] = []
    controls: list[ControlPoint] = []
    probe_ns: int = 0
    probe_moved: float = 0.0
    other_cores: float | None = None

    @staticmethod
    def key(device: DeviceFacts) -> str:
        """What these ceilings hold for: the same device, torch, kernels and threads give the same 16 hex digits."""
        told = (device.kind, device.name, device.memory_bytes, device.cores, device.threads, device.torch_version)
        # Of the kernels, those that are this lab's choice; the libraries behind torch's own come with its version.
        others = filter(None, map(device.kernels.get, ("gated_delta", "products")))
        chosen = [device.kernels.get("decode", "torch"), *others]
        return hashlib.sha256(repr((*told, device.cpu_capability, *chosen)).encode()).hexdigest()[:16]

    def peak(self, multiplication: str) -> float | None:
        """Highest matrix rate in FLOP/s; None where none was measured in its dtype.

        multiplication: as `Formats.multiplication` names it. Where matrices in another format never went faster, the
        rate is that of the dtype.
        """
        names = {multiplication, _computed_in(multiplication)}
        return max((rate for name, rate in self.peak_flops_per_s.items() if name in names), default=None)

    def peak_spread_of(self, multiplication: str) -> float:
        """Relative spread of the matrix rate in one dtype."""
        return self.peak_spreads.get(_computed_in(multiplication), self.peak_spread)

    def bandwidth_at(self, working_set_bytes: float) -> float:
        """Best read bandwidth in bytes/s over a working set, interpolated over log size, flat beyond the ends."""
        return _interpolate(working_set_bytes, self.bandwidth, [p.bytes_per_s for p in self.bandwidth])

    def moving_ns(self, moved_bytes: float, working_set_bytes: float) -> float:
        """Least time to move bytes, at the best read bandwidth over a working set."""
        return moved_bytes / self.bandwidth_at(working_set_bytes) * 1e9

    def computing_ns(self, flops: float, multiplication: str) -> float:
        """Least time for FLOPs, at that `peak`; 0 where there is none."""
        peak = self.peak(multiplication)
        return flops / peak * 1e9 if peak else 0.0

    def bandwidth_spread_at(self, working_set_bytes: float) -> float:
        """Relative spread of that bandwidth, interpolated likewise."""
        return _interpolate(working_set_bytes, self.bandwidth, [p.spread for p in self.bandwidth])


def _interpolate(working_set_bytes: float, points: list[BandwidthPoint], values: list[float]) -> float:
    sizes = [p.working_set_bytes for p in points]
    right = bisect.bisect_left(sizes, working_set_bytes)
    if right == 0:
        return values[0]
    if right == len(sizes):
        return values[-1]
    low, high = math.log(sizes[right - 1]), math.log(sizes[right])
    share = (math.log(working_set_bytes) - low) / (high - low)
    return values[right - 1] * (1 - share) + values[right] * share
