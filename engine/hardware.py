"""The devices of hardware_specs/ by id, a device of one's own, and which of them this machine reports.

Each file is read once and kept. Names are matched as a whole, never by a part: "NVIDIA A10" is a part
of "NVIDIA A100" and of "NVIDIA A10G", three devices with three rooflines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from engine.ceilings import DeviceFacts
from engine.errors import LabError
from engine.hardware_checks import USABLE_SHARE, parse
from engine.hardware_device import DTYPES, Device, Peak
from engine.toml_file import nearest, read_toml

__all__ = ["DTYPES", "Device", "Peak", "all", "from_form", "ids", "load", "of", "read_device_file", "recognise"]

FOLDER = Path(__file__).resolve().parent.parent / "hardware_specs"
BY_HAND = "by-hand"
MOST_NEAR = 6


@cache
def _paths() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*/*.toml"))}


def ids() -> tuple[str, ...]:
    """The id of every device listed, by vendor and then by id."""
    return tuple(_paths())


@cache
def load(hardware_id: str) -> Device:
    """The device with this id.

    Raises:
        LabError: no device has this id; names those that may be meant.
    """
    path = _paths().get(hardware_id)
    if path is not None:
        return read_device_file(path)
    near = _near(hardware_id)
    if near:
        raise LabError(
            "There is no device {hardware_id}; is {near} meant?", hardware_id=hardware_id[:100], near=", ".join(near)
        )
    raise LabError(
        "There is no device {hardware_id}; `python -m engine hardware` lists all {count} of them.",
        hardware_id=hardware_id[:100],
        count=len(_paths()),
    )


def of(facts: DeviceFacts) -> Device | None:
    """The listed device that was measured, or None where it is not listed."""
    return load(facts.hardware_id) if facts.hardware_id else None


def datasheet_bandwidth(facts: DeviceFacts) -> float | None:
    """The printed bandwidth of the device that was measured, in bytes/s, or None where it is not listed."""
    device = of(facts)
    return None if device is None else device.bandwidth_bytes_per_s


def _near(asked: str) -> list[str]:
    """What may have been meant: ids that hold every word asked for, else the one that is spelt most like it."""
    words = set(re.findall(r"[a-z0-9]+", asked.lower()[:100]))
    holding = [each for each in _paths() if words and words <= set(each.split("-"))]
    alike = nearest(asked[:100].lower(), _paths())
    return holding[:MOST_NEAR] or ([alike] if alike else [])


@cache
def all() -> tuple[Device, ...]:
    """Every device listed, in the order of `ids`."""
    return tuple(load(hardware_id) for hardware_id in ids())


def read_device_file(path: str | Path) -> Device:
    """A device of one's own, described in a TOML file of the same form as those in hardware_specs/.

    Raises:
        LabError: one sentence on what is wrong with the file.
    """
    path = Path(path)
    return parse(read_toml(path), path.name)


def from_form(fields: Mapping[str, Any]) -> Device:
    """A device of one's own, typed into a form: `name`, `bandwidth_bytes_per_s`, and as wanted `memory_bytes`,
    `usable_memory_bytes`, `cores`, `power_w`, and `<dtype>_flops_per_s` (dense) for any of `DTYPES`.

    Empty fields (None) count as not given.

    Raises:
        LabError: one sentence on the first field that cannot be right.
    """
    given = {key: value for key, value in fields.items() if value is not None}
    peaks = {}
    for dtype in DTYPES:
        if (rate := given.pop(f"{dtype}_flops_per_s", None)) is not None:
            accumulator = "int32" if dtype == "int8" else "fp32"
            peaks[dtype] = {"dense_flops_per_s": rate, "accumulator": accumulator, "source": [BY_HAND]}
    slug = re.sub(r"[^a-z0-9]+", "-", str(given.get("name", "")).lower()).strip("-")
    described = {
        "id": f"custom-{slug}"[:60].rstrip("-"), "vendor": "custom", "kind": "gpu", "architecture": "-",
        "confidence": "C", "retrieved": date.today().isoformat(), "source": [BY_HAND],
        "sources": {BY_HAND: "typed into the form"},
        "peaks": peaks, **given,
    }  # fmt: skip
    return parse(described, str(given.get("name") or "the form"))


def recognise(name: str, *, memory_bytes: int | None = None, cores: int | None = None) -> list[Device]:
    """The listed devices that report this name, told apart by memory and cores where those are given.

    An empty list means that the device is not listed; more than one, that name, memory and cores are
    the same for all of them (Jetson Orin Nano before and after its faster clocks) and someone has to choose.

    Args:
        name: as the driver, or /proc/cpuinfo, gives it.
        memory_bytes: the device's total memory as the driver reports it. A slice of a card is not the card.
        cores: multiprocessors (GPU) or cores of the chip (Apple). A CPU is known by its name alone: a virtual
            machine sees some of its cores, and `Device.cores` says how many the whole socket has.
    """
    plain = " ".join(name.split())
    named = [device for device in all() if any(re.fullmatch(p, plain) for p in device.name_patterns)]
    return [device for device in named if _memory_fits(device, memory_bytes) and _cores_fit(device, cores)]


def _memory_fits(device: Device, reported_bytes: int | None) -> bool:
    if reported_bytes is None or device.memory_bytes is None:
        return True
    low, high = USABLE_SHARE
    # Where less memory can be bought, only the upper end tells.
    return (device.memory_is_largest_option or reported_bytes >= low * device.memory_bytes) and (
        reported_bytes <= high * device.memory_bytes
    )


def _cores_fit(device: Device, reported: int | None) -> bool:
    return reported is None or device.cores is None or device.kind == "cpu" or reported == device.cores
