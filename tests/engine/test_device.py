"""Facts of this device against what the system and torch say by other ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine import device, hardware
from engine.errors import LabError

LINUX = sys.platform == "linux"


def test_facts_name_the_processor_its_memory_and_torch() -> None:
    facts = device.facts("cpu")
    assert facts.kind == "cpu"
    assert facts.name.strip()
    assert facts.torch_version == torch.__version__
    assert facts.threads == torch.get_num_threads()
    assert facts.cores is not None
    assert 1 <= facts.cores <= (os.cpu_count() or 1)
    assert facts.memory_bytes is not None
    assert facts.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.skipif(not LINUX, reason="lscpu exists on Linux only")
def test_name_and_caches_are_those_lscpu_shows() -> None:
    shown = subprocess.run(["lscpu", "-C=NAME,ONE-SIZE", "-B"], capture_output=True, text=True, check=True).stdout
    sizes = {name.lower(): int(size) for name, size in (line.split() for line in shown.splitlines()[1:])}
    sizes.pop("l1i", None)
    assert device.facts("cpu").cache_bytes == sizes
    assert device.cpu_name() in " ".join(subprocess.run(["lscpu"], capture_output=True, text=True).stdout.split())


def test_a_processor_is_named_from_cpuinfo() -> None:
    cpuinfo = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763   64-Core Processor\n"
    )
    assert device.cpu_name(cpuinfo) == "AMD EPYC 7763 64-Core Processor"


def test_threads_are_set_and_reported() -> None:
    before = torch.get_num_threads()
    try:
        device.use_threads(before + 1)
        assert device.facts("cpu").threads == torch.get_num_threads() == before + 1
    finally:
        device.use_threads(before)


def test_the_device_asked_for_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_DEVICE", "cuda:99")
    assert device.choose("cpu") == torch.device("cpu")
    with pytest.raises(LabError, match=r"There is no device cuda:99 here; torch finds .*cpu"):
        device.choose()


@pytest.mark.parametrize("name", ["tpu", "cpu:1", "cpu:x", "../cpu"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(LabError, match=r"torch finds .*cpu"):
        device.choose(name)


def test_the_cpu_is_always_there_and_last() -> None:
    assert device.available()[-1] == "cpu"


def test_a_slice_of_a_listed_socket_has_no_datasheet_and_the_whole_socket_has(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = hardware.from_form({"name": "A socket", "bandwidth_bytes_per_s": 3e11})
    socket = typed.model_copy(update={"kind": "cpu", "cores": 64})
    monkeypatch.setattr(hardware, "recognise", lambda name, **facts: [socket])
    monkeypatch.setattr(device, "physical_cores", lambda: 32)
    assert device.facts("cpu").hardware_id is None
    monkeypatch.setattr(device, "physical_cores", lambda: 64)
    assert device.facts("cpu").hardware_id == socket.id


def test_linux_cache_files_are_read_by_level(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate([(1, "Data", "32K"), (1, "Instruction", "32K"), (3, "Unified", "1G")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert device._linux_caches(tmp_path) == {"l1d": 32 * 1024, "l3": 2**30}
