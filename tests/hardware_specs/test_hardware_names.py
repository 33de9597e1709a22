"""Names that drivers report: each stands for the device it means, for no other, and variants for none."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from engine import hardware

GIB = 2**30


def _names() -> list[tuple[str, list[str]]]:
    lines = (Path(__file__).parent / "device_names.csv").read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [(row["name"], row["ids"].split()) for row in rows]


NAMES = _names()
# The only names that several listed devices share.
SHARED = {"Orin", "Apple M3 Max", "Apple M4 Max"}


def _ids(name: str, **facts: int) -> list[str]:
    return [device.id for device in hardware.recognise(name, **facts)]


def test_the_list_is_long_and_has_no_name_twice() -> None:
    assert len(NAMES) >= 220
    assert len({name for name, _ in NAMES}) == len(NAMES)


@pytest.mark.parametrize(("name", "expected"), NAMES, ids=[name for name, _ in NAMES])
def test_a_name_stands_for_one_device_or_none(name: str, expected: list[str]) -> None:
    assert sorted(_ids(name)) == sorted(expected)
    assert len(expected) <= 1 or name in SHARED


@pytest.mark.parametrize("name", [name for name, ids in NAMES if ids])
@pytest.mark.parametrize(
    "variant",
    ["{} Laptop GPU", "{} Ti", "{} SUPER", "{} D", "{}S", "{}0", "x{}", "{} MIG 1g.10gb", "{} with Max-Q Design"],
)
def test_no_variant_of_a_name_stands_for_the_device(name: str, variant: str) -> None:
    known = dict(NAMES)
    assert _ids(variant.format(name)) == known.get(variant.format(name), [])


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("NVIDIA A10", "NVIDIA A10G"), ("NVIDIA A10", "NVIDIA A100 80GB PCIe"), ("NVIDIA L4", "NVIDIA L40S"),
        ("NVIDIA H20", "NVIDIA H200"), ("NVIDIA B200", "NVIDIA GB200"), ("NVIDIA A40", "NVIDIA RTX A4000"),
        ("NVIDIA A30", "NVIDIA RTX A3000 Laptop GPU"), ("Tesla T4", "NVIDIA T400"), ("NVIDIA H200", "NVIDIA H200 NVL"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"),
    ],
)  # fmt: skip
def test_a_name_inside_another_is_another_device(short: str, long: str) -> None:
    assert not set(_ids(short)) & set(_ids(long))
    assert _ids(short)


def test_every_pattern_is_needed_by_a_real_name() -> None:
    reached = {hardware_id for _, ids in NAMES for hardware_id in ids}
    named = {device.id for device in hardware.all() if device.name_patterns}
    # Apple's chips are all named alike; the list holds a sample of them.
    assert {i for i in named - reached if not i.startswith("apple-")} == set()


def test_blanks_around_and_inside_a_name_do_not_matter() -> None:
    assert _ids("  NVIDIA  H100 80GB HBM3\n") == ["h100-sxm"]


def test_orin_modules_are_told_apart_as_far_as_they_can_be() -> None:
    assert _ids("Orin", memory_bytes=61 * GIB) == ["jetson-agx-orin-64gb"]
    assert _ids("Orin", cores=16) == ["jetson-agx-orin-64gb"]
    assert _ids("Orin", memory_bytes=7 * GIB, cores=8) == ["jetson-orin-nano-8gb", "jetson-orin-nano-super"]
    assert _ids("Orin", memory_bytes=15 * GIB) == [], "an Orin NX 16GB is not listed"
    assert _ids("Orin", memory_bytes=30 * GIB) == [], "nor is an AGX Orin 32GB"


def test_apple_chips_of_one_name_are_told_apart_by_cpu_cores() -> None:
    assert _ids("Apple M4 Max", memory_bytes=36 * GIB, cores=14) == ["apple-m4-max-14-core"]
    assert _ids("Apple M3 Max", memory_bytes=64 * GIB, cores=16) == ["apple-m3-max"]
    assert _ids("Apple M2", memory_bytes=8 * GIB, cores=8) == ["apple-m2"], "less memory than the largest option"


def test_the_smaller_card_of_the_same_name_is_not_taken_for_the_larger() -> None:
    assert _ids("NVIDIA GeForce RTX 3060", memory_bytes=12 * GIB) == ["rtx-3060-12gb"]
    assert _ids("NVIDIA GeForce RTX 3060", memory_bytes=8 * GIB) == []
    assert _ids("Intel(R) Arc(TM) A770 Graphics", memory_bytes=8 * GIB) == []


def test_a_slice_of_a_card_is_not_the_card() -> None:
    assert _ids("NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB, cores=132) == ["h100-sxm"]
    assert _ids("NVIDIA H100 80GB HBM3", memory_bytes=40 * GIB) == []
    assert _ids("AMD Instinct MI300X", memory_bytes=192 * GIB, cores=38) == [], "one of eight partitions"


@pytest.mark.parametrize(("name", "ids"), [(name, ids) for name, ids in NAMES if len(ids) == 1])
def test_the_memory_a_driver_reports_is_accepted(name: str, ids: list[str]) -> None:
    device = hardware.load(ids[0])
    if device.memory_bytes is None:
        assert device.kind == "cpu"
    else:
        # Where nobody noted it down, the driver may mean GiB by the maker's GB.
        reported = device.usable_memory_bytes or device.memory_bytes * GIB // 10**9
        assert _ids(name, memory_bytes=reported) == ids


def test_a_cpu_is_known_by_name_whatever_a_virtual_machine_shows_of_it() -> None:
    (found,) = hardware.recognise("AMD EPYC 7763 64-Core Processor", memory_bytes=16 * GIB, cores=4)
    assert (found.id, found.cores) == ("epyc-7763", 64)
