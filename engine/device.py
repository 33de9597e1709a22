"""The device this worker runs on: its name, memory, caches and threads, as the system tells them.

Worker-side (it may import torch). Knows nothing of models or ceilings; what it finds goes into every
record, so that a figure can never be read as another machine's.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

from engine import flash_delta, hardware, kernels, settings
from engine.ceilings import DeviceFacts
from engine.errors import LabError

# What the engine computes in, by the short names that ledger, ceilings and datasheets use.
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_SYSCTL_CACHES = {"l1d": "hw.l1dcachesize", "l2": "hw.l2cachesize", "l3": "hw.l3cachesize"}


def available() -> list[str]:
    """The kinds of device torch can use here, the fastest first; the CPU is always the last."""
    kinds: dict[str, Any] = {"cuda": torch.cuda, "xpu": torch.xpu, "mps": torch.backends.mps}
    return [kind for kind, module in kinds.items() if module.is_available()] + ["cpu"]


def choose(asked: str | None = None) -> torch.device:
    """The device to work on: the one asked for, else ROOFLINE_LAB_DEVICE, else the fastest kind torch finds.

    Raises:
        LabError: that device does not exist here; the sentence lists those that do.
    """
    name = asked or settings.device() or available()[0]
    kind, _, index = name.partition(":")
    there = kind in available() and (not index or (index.isdecimal() and int(index) < _count(kind)))
    if not there:
        raise LabError("There is no device {name} here; torch finds {found}.", name=name, found=", ".join(available()))
    return torch.device(name)


def use_threads(threads: int) -> None:
    """Compute with this many threads from now on (CPU kernels only; GPUs ignore it)."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def facts(device: torch.device | str) -> DeviceFacts:
    """What can be said of a device and the software on it, now."""
    device = torch.device(device)
    name, memory_bytes = _name(device), total_bytes(device)
    return DeviceFacts(
        kind=device.type,
        name=name,
        hardware_id=_hardware_id(device, name, memory_bytes),
        threads=torch.get_num_threads(),
        kernels=_kernels(device),
        memory_bytes=memory_bytes,
        cores=physical_cores() if device.type == "cpu" else None,
        cache_bytes=_cache_bytes(device),
        torch_version=torch.__version__,
        python_version=platform.python_version(),
        platform=platform.platform(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
    )


def physical_cores() -> int:
    """Cores of this machine as the system counts them, hyperthreads folded."""
    return psutil.cpu_count(logical=False) or psutil.cpu_count() or 1


def total_bytes(device: torch.device) -> int:
    """Memory of the device in bytes; for the CPU the machine's, or the container's limit where that is lower."""
    if device.type in ("cuda", "xpu"):
        return int(getattr(torch, device.type).get_device_properties(device).total_memory)
    machine = psutil.virtual_memory().total
    return min([machine, *_container_limits()])


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken now without pushing anything out, in bytes."""
    if device.type in ("cuda", "xpu"):
        return int(getattr(torch, device.type).mem_get_info(device)[0])
    unused_in_container = [limit - psutil.Process().memory_info().rss for limit in _container_limits()]
    return max(0, min([psutil.virtual_memory().available, *unused_in_container]))


def cpu_name(cpuinfo: str | None = None) -> str:
    """The processor's name: from /proc/cpuinfo on Linux, sysctl on macOS, else what Python knows.

    Args:
        cpuinfo: the text of /proc/cpuinfo, to read instead of this machine's.
    """
    if cpuinfo is None and Path("/proc/cpuinfo").exists():
        cpuinfo = Path("/proc/cpuinfo").read_text()
    # ARM kernels give no model name, only part numbers, which would mislead more than the architecture does.
    named = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", cpuinfo or "", re.MULTILINE)
    if named:
        return " ".join(named.group(1).split())
    return _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine()


def _name(device: torch.device) -> str:
    if device.type in ("cuda", "xpu"):
        return str(getattr(torch, device.type).get_device_name(device))
    return cpu_name()  # on Apple silicon the GPU carries the processor's name


def _count(kind: str) -> int:
    return 1 if kind in ("cpu", "mps") else int(getattr(torch, kind).device_count())


def _container_limits() -> list[int]:
    limits = [path.read_text().strip() for path in _CGROUP_LIMITS if path.exists()]
    return [int(limit) for limit in limits if limit.isdecimal()]  # "max" means none


def _cache_bytes(device: torch.device) -> dict[str, int]:
    """Cache sizes by level as one core sees them, in bytes; empty where the system does not tell."""
    if device.type in ("cuda", "xpu"):
        l2 = getattr(getattr(torch, device.type).get_device_properties(device), "L2_cache_size", 0)
        return {"l2": int(l2)} if l2 else {}
    if _CPU_CACHES.is_dir():
        return _linux_caches(_CPU_CACHES)
    sizes = {level: _sysctl(name) for level, name in _SYSCTL_CACHES.items()}
    return {level: int(size) for level, size in sizes.items() if size.isdecimal() and int(size)}


def _linux_caches(folder: Path) -> dict[str, int]:
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    found = {}
    for cache in sorted(folder.glob("index*")):
        kind = (cache / "type").read_text().strip()
        size = (cache / "size").read_text().strip()
        if kind != "Instruction" and size[:-1].isdecimal() and size[-1] in units:
            level = "l" + (cache / "level").read_text().strip() + ("d" if kind == "Data" else "")
            found[level] = int(size[:-1]) * units[size[-1]]
    return found


def _sysctl(name: str) -> str:
    if sys.platform != "darwin":
        return ""
    answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def _kernels(device: torch.device) -> dict[str, str]:
    """The libraries torch's own kernels come from on this device."""
    if device.type == "cuda":
        found = {"rocm": torch.version.hip} if torch.version.hip else {"cuda": str(torch.version.cuda)}
        return found | {"gated_delta": flash_delta.named(device)}
    if device.type != "cpu":
        return {}
    libraries: dict[str, Any] = {"mkl": torch.backends.mkl, "onednn": torch.backends.mkldnn}
    found = {name: "yes" if library.is_available() else "no" for name, library in libraries.items()}
    if not kernels.usable():
        return found | {"decode": "torch"}
    # What takes the steps of few rows in dense decoders computing in fp32, and elsewhere the products of such steps.
    return found | dict.fromkeys(("decode", "products"), f"numba {metadata.version('numba')}")


def _hardware_id(device: torch.device, name: str, memory_bytes: int) -> str | None:
    """The device's file in hardware_specs, or None when it has none, or more than one could be meant.

    A listed CPU is a whole socket. A virtual machine that holds a slice of one reports the socket's name,
    and must not be judged by the socket's bandwidth.
    """
    cores: int | None
    if device.type == "cuda":
        cores = torch.cuda.get_device_properties(device).multi_processor_count
    else:
        cores = physical_cores() if device.type in ("cpu", "mps") else None
    found = hardware.recognise(name, memory_bytes=memory_bytes, cores=cores)
    if device.type == "cpu":
        found = [listed for listed in found if listed.cores == cores]
    return found[0].id if len(found) == 1 else None
