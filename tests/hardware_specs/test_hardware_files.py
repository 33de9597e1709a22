"""The devices listed: that every figure has a source, is dense and plausible, and is not one of the usual mistakes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import hardware
from engine.errors import LabError
from engine.hardware import FOLDER, Device

ALL = hardware.all()
EVERY = pytest.mark.parametrize("device", ALL, ids=lambda d: d.id)
LEFT_OUT = ("l40", "h20-3e", "apple-m5-pro", "apple-m5-max", "ascend-910b3", "ascend-950dt")

# Best bf16 matrix products published, TFLOP/s (ai-dynamo/aiconfigurator's measured data).
BEST_BF16_GEMM_TFLOPS = {
    "a100-sxm4-80gb": 299, "h100-sxm": 956, "h200-sxm": 951, "b200": 2153, "gb200": 2312, "b300": 2225, "gb300": 2357,
    "l40s": 315, "rtx-pro-6000-server": 459, "arc-pro-b60": 98, "l4": 70.9, "a10g": 66.6,
}  # fmt: skip
# The same by large torch products (stas00/ml-engineering, maximum achievable matmul FLOPS).
SUSTAINED_BF16_TFLOPS = {
    "h100-sxm": 794, "a100-sxm4-80gb": 271, "mi300x": 668, "mi355x": 1565, "gaudi3": 1243, "b200": 1745,
}  # fmt: skip


def test_about_a_hundred_devices_are_listed_and_those_left_out_are_explained() -> None:
    assert len(ALL) >= 95
    explained = (FOLDER / "README.md").read_text()
    assert not set(LEFT_OUT) & set(hardware.ids())
    for name in ("L40 ", "H20-3e", "M5 Pro", "M5 Max", "910B3", "950DT"):
        assert name in explained


@EVERY
def test_the_file_is_named_after_the_device(device: Device) -> None:
    assert [path.name for path in FOLDER.glob(f"{device.vendor}/{device.id}.toml")] == [f"{device.id}.toml"]


@EVERY
def test_every_figure_has_a_source_that_can_be_looked_up(device: Device) -> None:
    cited = [set(device.source), *(set(peak.source) for peak in device.peaks.values())]
    for keys in cited:
        assert keys
        assert keys <= set(device.sources)
        # A list of names is no source of a figure.
        assert not keys & {"driver-list", "vllm", "forum-query", "cuda-query"}
    assert not any("google.com/search" in text for text in device.sources.values())


@EVERY
def test_figures_are_in_the_range_of_real_devices(device: Device) -> None:
    assert 60e9 <= device.bandwidth_bytes_per_s <= 10e12
    if device.memory_bytes is not None:
        assert 8e9 <= device.memory_bytes <= 512e9
        # No device reads the whole of its memory in under 15 ms or takes longer than a second.
        assert 0.015 <= device.memory_bytes / device.bandwidth_bytes_per_s <= 1.0
    for dtype, ridge in device.ridges.items():
        assert 5 <= ridge <= 4000, dtype
    if device.power_w is not None:
        assert 10 <= device.power_w <= 1500
    if device.peaks:
        assert device.kind != "cpu"


@EVERY
def test_narrower_numbers_are_not_slower(device: Device) -> None:
    rate = {dtype: peak.dense_flops_per_s for dtype, peak in device.peaks.items()}
    for narrow, wide in (("fp8", "bf16"), ("fp8", "fp16"), ("fp4", "fp8"), ("bf16", "tf32"), ("tf32", "fp32")):
        if narrow in rate and wide in rate:
            # RTX 3060 and A10G round tf32 to a hair under fp32.
            assert rate[narrow] >= 0.99 * rate[wide], (narrow, wide)


@EVERY
def test_remarks_are_sentences(device: Device) -> None:
    assert device.remarks
    assert all(remark.endswith(".") for remark in device.remarks)


def test_golden_ridge_of_the_h100() -> None:
    assert hardware.load("h100-sxm").ridge_flop_per_byte("bf16") == pytest.approx(295.37, abs=0.005)
    assert hardware.load("h100-sxm").ridges["bf16"] == hardware.load("h100-sxm").ridge_flop_per_byte("bfloat16")


def test_anchors_of_the_lesson() -> None:
    a100, h100, h200 = (hardware.load(i) for i in ("a100-sxm4-80gb", "h100-sxm", "h200-sxm"))
    assert (a100.bandwidth_bytes_per_s, a100.peak_flops_per_s("bf16")) == (2039e9, 312e12)
    assert (h100.memory_bytes, h200.memory_bytes) == (80_000_000_000, 141_000_000_000)
    assert h200.bandwidth_bytes_per_s / h100.bandwidth_bytes_per_s == pytest.approx(1.4328, abs=5e-5)
    assert h100.bandwidth_bytes_per_s / a100.bandwidth_bytes_per_s == pytest.approx(1.6430, abs=5e-5)
    assert h100.peak_flops_per_s("bf16") / a100.peak_flops_per_s("bf16") == pytest.approx(3.1715, abs=5e-5)


@pytest.mark.parametrize(("hardware_id", "best"), sorted(BEST_BF16_GEMM_TFLOPS.items()))
def test_a_sparse_peak_would_put_every_measured_product_under_half(hardware_id: str, best: float) -> None:
    peak = hardware.load(hardware_id).peak_flops_per_s("bf16") or 0.0
    assert 0.5 < best * 1e12 / peak <= 1.0, "dense: the best product fits under it and above its half"
    assert best * 1e12 / (2 * peak) < 0.5, "sparse: the same product would look hopeless"


@pytest.mark.parametrize(("hardware_id", "best"), sorted(SUSTAINED_BF16_TFLOPS.items()))
def test_no_sustained_product_beats_its_peak(hardware_id: str, best: float) -> None:
    assert best * 1e12 <= (hardware.load(hardware_id).peak_flops_per_s("bf16") or 0.0)


def test_measured_products_shown_beside_a_peak_are_those_published() -> None:
    shown = {d.id: d.peaks["bf16"].measured_flops_per_s for d in ALL if "bf16" in d.peaks}
    assert {i: round(v / 1e12, 3) for i, v in shown.items() if v} == BEST_BF16_GEMM_TFLOPS


# (device, dtype, the right TFLOP/s, one in circulation): sparse for dense, a sister's, or a vector rate.
MISTAKES = [
    ("h100-sxm", "bf16", 989.5, 1979), ("h100-sxm", "bf16", 989.5, 1000), ("h100-sxm", "bf16", 989.5, 1070),
    ("h100-sxm", "fp8", 1979, 3958), ("h100-sxm", "tf32", 494.5, 156), ("h100-pcie", "bf16", 756.5, 989.5),
    ("h100-pcie", "bf16", 756.5, 1513), ("h100-nvl", "bf16", 835.5, 989.5), ("h200-sxm", "bf16", 989.5, 241.3),
    ("gh200-96gb", "bf16", 989.5, 1979), ("b100", "bf16", 1750, 3500), ("b200", "fp4", 9000, 20000),
    ("gb200", "bf16", 2500, 5000), ("b300", "int8", 153.5, 4500), ("gb300", "int8", 165, 5000),
    ("b300", "fp4", 13500, 9000), ("l4", "bf16", 121, 242), ("l4", "bf16", 121, 60.6), ("l40s", "bf16", 362.05, 183),
    ("l40s", "bf16", 362.05, 733), ("a10g", "bf16", 70, 125), ("a10g", "bf16", 70, 140), ("a10", "bf16", 125, 250),
    ("rtx-a6000", "bf16", 154.8, 309.7), ("rtx-a6000", "bf16", 154.8, 38.7), ("rtx-6000-ada", "fp8", 728.5, 1457),
    ("rtx-4090", "bf16", 165.2, 330.3), ("rtx-4090", "bf16", 165.2, 82.6), ("rtx-4090", "fp8", 330.3, 660.6),
    ("rtx-3090", "bf16", 71, 142), ("rtx-3090", "bf16", 71, 16.3), ("rtx-5090", "fp4", 1676, 3352),
    ("rtx-5090", "fp8", 419, 838), ("dgx-spark-gb10", "fp4", 500, 1000), ("jetson-agx-orin-64gb", "int8", 85, 275),
    ("jetson-agx-orin-64gb", "bf16", 42.5, 85), ("jetson-thor-t5000", "fp4", 1035, 2070),
    ("mi300x", "bf16", 1307.4, 1336), ("mi300x", "bf16", 1307.4, 2614.9), ("mi355x", "fp4", 10066, 20100),
    ("mi210", "int8", 181, 362), ("trainium2", "fp8", 1299, 2563), ("h20", "bf16", 148, 74),
    ("v100-sxm2-16gb", "fp16", 125, 112), ("a100-sxm4-80gb", "bf16", 312, 624), ("a100-sxm4-80gb", "bf16", 312, 77.97),
    ("tpu-v6e", "fp8", 918, 1836), ("gaudi3", "fp8", 1835, 3670), ("ascend-910c", "bf16", 752, 800),
]  # fmt: skip


@pytest.mark.parametrize(("hardware_id", "dtype", "right", "wrong"), MISTAKES)
def test_rates_other_tables_get_wrong(hardware_id: str, dtype: str, right: float, wrong: float) -> None:
    rate = hardware.load(hardware_id).peak_flops_per_s(dtype)
    assert rate == right * 1e12
    assert abs(rate / (wrong * 1e12) - 1) > 0.01


# (device, the right GB/s, a figure in circulation): GiB for GB, another card's, or a slip of a thousand.
BANDWIDTHS = [
    ("h100-sxm", 3350, 3350 * 1.024**3), ("h100-sxm", 3350, 3072), ("h100-sxm", 3350, 3000), ("h100-sxm", 3350, 3400),
    ("h100-pcie", 2000, 3350), ("h100-nvl", 3900, 7800), ("l4", 300, 3350), ("rtx-5090", 1792, 1.792e6),
    ("a100-sxm4-40gb", 1555, 1600), ("gb200", 8000, 4500), ("b200", 8000, 4100), ("v100-sxm2-16gb", 900, 1130),
    ("rtx-pro-6000-server", 1597, 1792), ("mi300x", 5300, 10300), ("arc-a770-16gb", 560, 512), ("tpu-v5e", 819, 859),
    ("inferentia2", 820, 880), ("t4", 320, 300), ("graviton4", 537.6, 536.7), ("rtx-3060-12gb", 360, 240),
    ("apple-m3-pro", 150, 200), ("jetson-agx-orin-64gb", 204.8, 102.4),
]  # fmt: skip


@pytest.mark.parametrize(("hardware_id", "right", "wrong"), BANDWIDTHS)
def test_bandwidths_other_tables_get_wrong(hardware_id: str, right: float, wrong: float) -> None:
    assert hardware.load(hardware_id).bandwidth_bytes_per_s == right * 1e9 != wrong * 1e9


# (device, the right GB, a figure in circulation)
MEMORIES = [
    ("a10", 24, 28), ("v100-sxm2-16gb", 16, 32), ("gh200-96gb", 96, 480), ("b200", 180, 192), ("b300", 288, 144),
    ("mi325x", 256, 288), ("h100-nvl", 94, 188), ("mi250x-one-die", 64, 128), ("rtx-3060-12gb", 12, 8),
]  # fmt: skip


@pytest.mark.parametrize(("hardware_id", "right", "wrong"), MEMORIES)
def test_memories_other_tables_get_wrong(hardware_id: str, right: float, wrong: float) -> None:
    assert hardware.load(hardware_id).memory_bytes == right * 10**9 != wrong * 10**9


def test_usable_memory_is_what_the_driver_reports() -> None:
    mib = {"h200-sxm": 143771, "b200": 183359, "gb200": 189471, "gb300": 284208, "b300": 275040, "l40s": 46068,
           "a10g": 23028, "h20": 97871, "rtx-pro-6000-server": 97887}  # fmt: skip
    for hardware_id, reported in mib.items():
        assert hardware.load(hardware_id).usable_memory_bytes == reported * 2**20


def test_what_is_not_published_is_none_and_not_a_guess() -> None:
    for hardware_id, dtype in (
        ("dgx-spark-gb10", "bf16"), ("apple-m2-ultra", "fp16"), ("a100-sxm4-80gb", "fp8"), ("h100-sxm", "fp4"),
        ("t4", "bf16"), ("rx-7900-xtx", "bf16"), ("epyc-9654", "fp32"), ("ascend-910c", "fp8"), ("h100-sxm", "fp2"),
    ):  # fmt: skip
        assert hardware.load(hardware_id).peak_flops_per_s(dtype) is None
        assert hardware.load(hardware_id).ridge_flop_per_byte(dtype) is None


def test_geforce_cards_keep_the_ratio_of_fp32_sums() -> None:
    """bf16 : fp8 : int8 : fp4 is 1 : 2 : 4 : 8 on GeForce, because only fp32 sums are halved there."""
    card = hardware.load("rtx-5090")
    bf16 = card.peak_flops_per_s("bf16") or 0.0
    for dtype, times in (("fp8", 2), ("int8", 4), ("fp4", 8)):
        assert card.peak_flops_per_s(dtype) == pytest.approx(times * bf16, rel=0.001)


def test_a_server_cpu_says_how_many_cores_its_bandwidth_belongs_to() -> None:
    assert hardware.load("epyc-7763").cores == 64
    assert all(device.cores for device in ALL if device.kind == "cpu")


def test_unknown_ids_are_refused_with_the_nearest() -> None:
    with pytest.raises(LabError, match=r"There is no device h100-smx; is h100-sxm meant\?"):
        hardware.load("h100-smx")
    with pytest.raises(LabError, match=r"There is no device h100; is h100-nvl, h100-pcie, h100-sxm meant\?"):
        hardware.load("h100")
    with pytest.raises(LabError, match=r"There is no device 4090; is rtx-4090 meant\?"):
        hardware.load("4090")
    with pytest.raises(LabError, match=r"^There is no device ../../etc/passwd; `python -m engine hardware` lists all"):
        hardware.load("../../etc/passwd")
    with pytest.raises(LabError) as long:
        hardware.load("x" * 100_000)
    assert len(str(long.value)) < 300


def test_loading_is_fast_cached_and_brings_no_torch() -> None:
    hardware.load.cache_clear()
    started = time.perf_counter()
    first = hardware.load("b300")
    assert time.perf_counter() - started < 0.05
    assert hardware.load("b300") is first
    code = "import sys, engine.hardware as h; h.all(); print({'torch', 'numpy', 'streamlit'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(FOLDER).parent
    )
    assert found.stdout.strip() == "set()"
