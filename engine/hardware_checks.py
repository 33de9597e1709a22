"""What makes the description of a device wrong, each in one sentence.

The usual mistakes of published tables: a figure in GB/s or TFLOPS where bytes/s and FLOP/s are
meant, a sparse rate taken for a dense one, a number without a source, a key nobody reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from engine.errors import LabError
from engine.hardware_device import Device, Peak
from engine.toml_file import explain

# Datasheets round the two rates apart: the L40S prints 362.05 beside 733, Trainium2 667 beside 2563.
SPARSE_TOLERANCE = 0.05
# Drivers count GiB where the maker's GB may mean either (+7.4 %), and keep some memory back.
USABLE_SHARE = (0.75, 1.10)

# How each key is written, shown when it is missing or of the wrong type.
EXAMPLES = {
    "id": 'id = "my-card"', "vendor": 'vendor = "nvidia"', "name": 'name = "My card"', "kind": 'kind = "gpu"',
    "architecture": 'architecture = "hopper"', "bandwidth_bytes_per_s": "bandwidth_bytes_per_s = 3.35e12",
    "source": 'source = ["datasheet"]', "sources": '[sources] datasheet = "title and address"',
    "confidence": 'confidence = "B"', "retrieved": 'retrieved = "2026-11"', "memory_bytes": "memory_bytes = 80e9",
    "usable_memory_bytes": "usable_memory_bytes = 79e9",
    "memory_is_largest_option": "memory_is_largest_option = true",
    "cache_bytes": "cache_bytes = 50e6", "cores": "cores = 132", "power_w": "power_w = 700", "year": "year = 2022",
    "name_patterns": "name_patterns = ['NVIDIA L4']", "remarks": 'remarks = ["one sentence"]',
    "compute_capability": 'compute_capability = "9.0"', "memory_type": 'memory_type = "HBM3"',
    "peaks": "[peaks.bf16] dense_flops_per_s = 989.5e12", "dense_flops_per_s": "dense_flops_per_s = 989.5e12",
    "accumulator": 'accumulator = "fp32"', "sparse_flops_per_s": "sparse_flops_per_s = 1979e12",
    "sparse_ratio": "sparse_ratio = 2", "measured_flops_per_s": "measured_flops_per_s = 956e12",
}  # fmt: skip


def parse(fields: Mapping[str, Any], file: str) -> Device:
    """The device that `fields` describe; `file` is what a refusal calls them.

    Raises:
        LabError: one sentence on the first thing that is wrong.
    """
    try:
        device = Device.model_validate(dict(fields))
    except ValidationError as refused:
        raise explain(refused, file, {"": Device, "peaks": Peak}, EXAMPLES) from None
    check(device, file)
    return device


def check(device: Device, file: str) -> None:
    """What the types cannot see.

    Raises:
        LabError: one sentence on the first thing that cannot be true.
    """
    _check_bandwidth(device, file)
    _check_memory(device, file)
    _check_sources("source", device.source, device, file)
    for dtype, peak in device.peaks.items():
        _check_peak(dtype, peak, device, file)
    _check_order(device, file)
    _check_patterns(device, file)


def _check_bandwidth(device: Device, file: str) -> None:
    value = device.bandwidth_bytes_per_s
    if not 1e9 <= value <= 1e14:
        raise LabError(
            "bandwidth_bytes_per_s in {file} is {value:g}; memory moves between 1e9 and 1e14 bytes per second, "
            "so this figure is in another unit.",
            file=file,
            value=value,
        )


def _check_memory(device: Device, file: str) -> None:
    if device.memory_bytes is not None and not 1e9 <= device.memory_bytes <= 1e13:
        raise LabError(
            "memory_bytes in {file} is {value:g}; a device holds between 1e9 and 1e13 bytes, so this figure is in "
            "another unit.",
            file=file,
            value=device.memory_bytes,
        )
    if device.cache_bytes is not None and not 1e5 <= device.cache_bytes <= 1e10:
        raise LabError(
            "cache_bytes in {file} is {value:g}; a cache holds between 1e5 and 1e10 bytes, so this figure is in "
            "another unit.",
            file=file,
            value=device.cache_bytes,
        )
    if device.usable_memory_bytes is None:
        return
    if device.memory_bytes is None:
        raise LabError("{file} gives usable_memory_bytes; it has to give memory_bytes, as marketed, too.", file=file)
    if not USABLE_SHARE[0] <= device.usable_memory_bytes / device.memory_bytes <= USABLE_SHARE[1]:
        raise LabError(
            "usable_memory_bytes in {file} is {usable:g} of {memory:g} marketed; they belong within {low:.0%} and "
            "{high:.0%} of each other.",
            file=file,
            usable=device.usable_memory_bytes,
            memory=device.memory_bytes,
            low=USABLE_SHARE[0],
            high=USABLE_SHARE[1],
        )


def _check_sources(key: str, cited: Iterable[str], device: Device, file: str) -> None:
    for name in cited:
        if name not in device.sources:
            raise LabError(
                "{key} in {file} cites {name}, which is not in its [sources]; those are {known}.",
                key=key,
                file=file,
                name=name,
                known=", ".join(device.sources) or "-",
            )


def _check_peak(dtype: str, peak: Peak, device: Device, file: str) -> None:
    key = f"peaks.{dtype}"
    _check_sources(f"{key}.source", peak.source, device, file)
    for name in ("dense_flops_per_s", "sparse_flops_per_s", "measured_flops_per_s"):
        value = getattr(peak, name)
        if value is not None and not 1e10 <= value <= 1e17:
            raise LabError(
                "{key} in {file} is {value:g}; a device does between 1e10 and 1e17 operations per second, so this "
                "figure is in another unit.",
                key=f"{key}.{name}",
                file=file,
                value=value,
            )
    if peak.accumulator != ("int32" if dtype == "int8" else "fp32"):
        raise LabError(
            "{key}.accumulator in {file} is {value}; the lab counts {expected} sums for {dtype}.",
            key=key,
            file=file,
            value=peak.accumulator,
            expected="int32" if dtype == "int8" else "fp32",
            dtype=dtype,
        )
    _check_sparse(key, peak, file)
    _check_measured(key, peak, device, file)


def _check_sparse(key: str, peak: Peak, file: str) -> None:
    if peak.sparse_flops_per_s is None and peak.sparse_ratio is None:
        return
    if peak.sparse_ratio is None:
        raise LabError(
            "{key} in {file} has sparse_flops_per_s without sparse_ratio; 2 is usual and 4 exists.", key=key, file=file
        )
    if peak.sparse_flops_per_s is None:
        raise LabError("{key} in {file} has sparse_ratio without sparse_flops_per_s.", key=key, file=file)
    expected = peak.dense_flops_per_s * peak.sparse_ratio
    if abs(peak.sparse_flops_per_s / expected - 1) > SPARSE_TOLERANCE:
        raise LabError(
            "{key} in {file}: {dense:g} dense at a ratio of {ratio:g} would be {expected:g} sparse, not {sparse:g}; "
            "one of them is the other kind.",
            key=key,
            file=file,
            dense=peak.dense_flops_per_s,
            ratio=peak.sparse_ratio,
            expected=expected,
            sparse=peak.sparse_flops_per_s,
        )


def _check_measured(key: str, peak: Peak, device: Device, file: str) -> None:
    if peak.measured_flops_per_s is None:
        return
    if peak.measured_source is None:
        raise LabError("{key} in {file} has measured_flops_per_s without measured_source.", key=key, file=file)
    _check_sources(f"{key}.measured_source", [peak.measured_source], device, file)
    if peak.measured_flops_per_s > peak.dense_flops_per_s:
        raise LabError(
            "{key} in {file} was measured at {measured:g}, above its dense peak of {dense:g}; one of the two is wrong.",
            key=key,
            file=file,
            measured=peak.measured_flops_per_s,
            dense=peak.dense_flops_per_s,
        )


def _check_order(device: Device, file: str) -> None:
    """No unit multiplies narrower numbers more slowly than wider ones of the same kind."""
    bf16, fp8 = device.peak_flops_per_s("bf16"), device.peak_flops_per_s("fp8")
    if bf16 is not None and fp8 is not None and fp8 < bf16:
        raise LabError(
            "{file} has fp8 at {fp8:g}, below bf16 at {bf16:g}; bf16 may be the sparse figure.",
            file=file,
            fp8=fp8,
            bf16=bf16,
        )


def _check_patterns(device: Device, file: str) -> None:
    for pattern in device.name_patterns:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise LabError(
                "The name pattern {pattern} in {file} is not a regular expression: {reason}.",
                file=file,
                pattern=pattern,
                reason=str(error),
            ) from None
        # A pattern that fits any name would claim every device.
        if compiled.fullmatch("") or compiled.fullmatch("any device at all"):
            raise LabError(
                "The name pattern {pattern} in {file} fits any name; it has to name this device.",
                file=file,
                pattern=pattern,
            )
