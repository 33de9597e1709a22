"""This machine's ceilings, measured apart from any run: read bandwidth by working set, GEMM peak, launch cost.

Worker-side. What a model's own shapes reach is measured by `engine.calibrate_model`; what follows from
all this for a step is worked out in `engine.expected`. Nothing here ever sees a run.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from engine import device as devices
from engine import kernels
from engine.arena import Arena
from engine.calibrate_model import for_model
from engine.ceilings import BandwidthPoint, Ceilings
from engine.clock import clock_for
from engine.errors import N_
from engine.judging import probe_moved
from engine.measure import (
    SAMPLE_NS,
    Call,
    Elapsed,
    Progress,
    ShouldStop,
    Timing,
    in_turn,
    part,
    repetitions,
    trial_ns,
)
from engine.neighbours import Neighbours
from engine.probe import probe
from engine.record import new_run_id, now

__all__ = ["calibrate", "for_model"]

SMALLEST_BYTES = 2**16
LARGEST_BYTES = 2**30
ROUNDS = 7
# The rounds take about 8 s on two small cores left alone; on a busy machine these bounds end them.
BANDWIDTH_S, GEMM_S = 10.0, 4.0
MATVEC_COLUMNS = 1024
# A kernel this much slower than the best at one size, and long, is no candidate at the next: on CPUs
# without bf16 units a bf16 matvec can be 100 times slower, and would cost minutes at the largest size.
HOPELESS = 8.0

GEMM_SIZES = (256, 512, 1024, 2048, 4096, 8192)
# The next size up costs eight times as much; it is tried only after a call shorter than this.
GEMM_LIMIT_NS = 30_000_000

MEASURING_BANDWIDTH = N_("Measuring how fast memory can be read, by size")
MEASURING_GEMM = N_("Measuring the peak rate of matrix multiplication")
MEASURING_LAUNCH = N_("Measuring what starting one operation costs")


def calibrate(
    device: torch.device | str,
    threads: int,
    *,
    largest_bytes: int = LARGEST_BYTES,
    gemm_sizes: tuple[int, ...] = GEMM_SIZES,
    rounds: int = ROUNDS,
    progress: Progress = lambda sentence, fraction: None,
    should_stop: ShouldStop = lambda: False,
) -> Ceilings:
    """Measure a device's general ceilings, in about 15 s on two small cores.

    Args:
        largest_bytes: the largest working set to read; a quarter of the free memory at most is taken.
        progress: told what is being measured and the share done, 1.0 at the end.
        should_stop: asked before every sample.

    Raises:
        engine.measure.Stopped: `should_stop` said so.
    """
    device = torch.device(device)
    devices.use_threads(threads)
    elapsed, neighbours = elapsed_on(device), Neighbours()
    with torch.inference_mode():
        probe_before_ns = probe(device)

        told = part(progress, MEASURING_BANDWIDTH, 0.0, 0.7)
        bandwidth = _bandwidth(device, elapsed, largest_bytes, rounds, on_share=told, should_stop=should_stop)
        told = part(progress, MEASURING_GEMM, 0.7, 0.95)
        peaks = _gemm_peaks(device, elapsed, gemm_sizes, rounds, on_share=told, should_stop=should_stop)
        told = part(progress, MEASURING_LAUNCH, 0.95, 1.0)
        launch = _launch(device, elapsed, rounds, on_share=told, should_stop=should_stop)
        probe_after_ns = probe(device)
    return Ceilings(
        id=new_run_id(),
        measured_at=now(),
        device=devices.facts(device),
        bandwidth=bandwidth,
        peak_flops_per_s={dtype: rate for dtype, (rate, _) in peaks.items()},
        peak_spread=max(spread for _, spread in peaks.values()),
        peak_spreads={dtype: spread for dtype, (_, spread) in peaks.items()},
        launch_ns=launch.time_ns,
        launch_spread=launch.spread,
        probe_ns=round((probe_before_ns + probe_after_ns) / 2),
        probe_moved=probe_moved(probe_before_ns, probe_after_ns),
        other_cores=neighbours.other_cores(),
    )


def elapsed_on(device: torch.device) -> Elapsed:
    """How long a callable takes on the device's own clock, in nanoseconds."""
    clock = clock_for(device)
    return lambda call: clock.time(call)[1]


def _bandwidth(
    device: torch.device,
    elapsed: Elapsed,
    largest_bytes: int,
    rounds: int,
    *,
    on_share: Callable[[float], None],
    should_stop: ShouldStop,
) -> list[BandwidthPoint]:
    """Bytes read per second over working sets of doubling size, each with every candidate kernel."""
    limit = max(SMALLEST_BYTES, min(largest_bytes, devices.free_bytes(device) // 4))
    sizes = [SMALLEST_BYTES << step for step in range((limit // SMALLEST_BYTES).bit_length())]
    # Filled, not zeroed: untouched zero pages all map to one page, which would be read from cache.
    buffer = Arena().empty((sizes[-1] // 4,), torch.float32, device).fill_(0.01)
    calls: dict[tuple[int, str], Call] = {}
    repeat: dict[tuple[int, str], int] = {}
    hopeless: set[str] = set()
    for size in sizes:
        readers = {name: call for name, call in _readers(buffer[: size // 4]).items() if name not in hopeless}
        trials = {name: trial_ns(call, elapsed, should_stop) for name, call in readers.items()}
        hopeless |= {name for name, time in trials.items() if time > max(SAMPLE_NS, HOPELESS * min(trials.values()))}
        calls |= {(size, name): readers[name] for name in readers if name not in hopeless}
        repeat |= {(size, name): repetitions(trials[name]) for name in readers if name not in hopeless}
    timings = in_turn(
        calls, repeat, elapsed, rounds=rounds, budget_s=BANDWIDTH_S, on_share=on_share, should_stop=should_stop
    )
    return [_bandwidth_point(size, {name: t for (at, name), t in timings.items() if at == size}) for size in sizes]


def _readers(values: torch.Tensor) -> dict[str, Call]:
    """Kernels that read every byte of `values` once and write next to nothing."""
    matrix = values.view(-1, MATVEC_COLUMNS)
    half = values.view(torch.bfloat16).view(-1, MATVEC_COLUMNS)
    vector, vector_half = torch.full_like(matrix[0], 0.5), torch.full_like(half[0], 0.5)
    row, row_half = vector[None], vector_half[None]
    return _compiled_reader(values) | {
        "sum": values.sum,
        "max": values.amax,
        "dot": lambda: torch.dot(values, values),
        "mv": lambda: torch.mv(matrix, vector),
        "linear": lambda: functional.linear(row, matrix),
        "mv bf16": lambda: torch.mv(half, vector_half),
        "linear bf16": lambda: functional.linear(row_half, half),
    }


def _compiled_reader(values: torch.Tensor) -> dict[str, Call]:
    """The kernels that decode with: a step they make must not be judged by slower ones."""
    if values.device.type != "cpu" or not kernels.usable():
        return {}
    from engine.kernels.reader import reading

    return {"compiled": reading(values.data_ptr(), values.numel(), torch.get_num_threads())}


def _bandwidth_point(size: int, by_kernel: dict[str, Timing]) -> BandwidthPoint:
    best = min(by_kernel.values(), key=lambda timing: timing.time_ns)
    return BandwidthPoint(
        working_set_bytes=size,
        bytes_per_s=size / best.time_ns * 1e9,
        spread=best.spread,
        by_kernel={name: size / timing.time_ns * 1e9 for name, timing in by_kernel.items()},
    )


def _gemm_peaks(
    device: torch.device,
    elapsed: Elapsed,
    sizes: tuple[int, ...],
    rounds: int,
    *,
    on_share: Callable[[float], None],
    should_stop: ShouldStop,
) -> dict[str, tuple[float, float]]:
    """The best FLOP rate of a square product in each dtype, 2 n^3 FLOPs each, and its spread."""
    calls: dict[tuple[str, int], Call] = {}
    repeat: dict[tuple[str, int], int] = {}
    for dtype, torch_dtype in devices.DTYPES.items():
        for size in sizes:
            call = _square_product(size, torch_dtype, device)
            trial = trial_ns(call, elapsed, should_stop)
            calls[dtype, size], repeat[dtype, size] = call, repetitions(trial)
            if trial > GEMM_LIMIT_NS:
                break
    timings = in_turn(
        calls, repeat, elapsed, rounds=rounds, budget_s=GEMM_S, on_share=on_share, should_stop=should_stop
    )
    best: dict[str, tuple[float, float]] = {}
    for (dtype, size), timing in timings.items():
        rate = 2 * size**3 / timing.time_ns * 1e9
        if dtype not in best or rate > best[dtype][0]:
            best[dtype] = (rate, timing.spread)
    return best


def _square_product(size: int, dtype: torch.dtype, device: torch.device) -> Call:
    left, right = (torch.full((size, size), 0.01, dtype=dtype, device=device) for _ in range(2))
    return lambda: functional.linear(left, right)


def _launch(
    device: torch.device,
    elapsed: Elapsed,
    rounds: int,
    *,
    on_share: Callable[[float], None],
    should_stop: ShouldStop,
) -> Timing:
    """What one operation costs beyond its work: an addition of 64 numbers, called as the engine calls its own."""
    few = torch.full((1, 64), 0.01, device=device)
    calls, repeat = {"add": lambda: few + few}, {"add": 1000}
    timings = in_turn(calls, repeat, elapsed, rounds=3 * rounds, on_share=on_share, should_stop=should_stop)
    return timings["add"]
