"""Growth over batch and context, room, the two estimates, this machine as a device, and a run's points."""

from __future__ import annotations

import numpy as np
import pytest
from records import ceilings, run

from engine import catalogue, growth, hardware
from engine.errors import LabError
from engine.ledger import BF16, LESSON, Formats
from engine.measured_device import MeasuredDevice
from engine.measured_points import points
from engine.predict import predict, roof_of
from engine.roofline import Roof, replaced_kv_bytes_per_position
from engine.two_estimates import Change, estimate, estimates, work

ANCHOR = "Qwen/Qwen3.8-27B"
RULES = {"formats": BF16, "convention": "lesson"}


def _room(batch: int, device: str = "h100-sxm", convention: str = "lesson") -> growth.Room:
    rules = {"formats": BF16, "convention": convention}
    return growth.room(catalogue.load(ANCHOR), hardware.load(device), batch=batch, context=4096, **rules)


def test_58_requests_fit_in_80_gb_and_59_do_not() -> None:
    """The lesson's own count: 55,562,855,904 B of checkpoint and 419,430,400 B a request."""
    assert _room(58).over_bytes == 0
    assert _room(59).over_bytes == 55_562_855_904 + 59 * 419_430_400 - 80_000_000_000
    assert _room(1).most == _room(59).most == 58
    assert _room(1, "h200-sxm").most == 203


def test_engine_rules_count_against_what_can_be_used() -> None:
    device = next(device for device in hardware.all() if device.usable_memory_bytes)
    marketed = _room(1, device.id)
    usable = _room(1, device.id, "engine")
    assert (marketed.memory_bytes, usable.memory_bytes) == (device.memory_bytes, device.usable_memory_bytes)


def test_over_batch_equals_predict_at_every_batch() -> None:
    spec, roof = catalogue.load(ANCHOR), roof_of(hardware.load("h100-sxm"), BF16)[0]
    grown = growth.over_batch(spec, roof, (1, 58, 300), context=4096, **RULES)
    for at, batch in enumerate((1, 58, 300)):
        alone = predict(ANCHOR, "h100-sxm", context=4096, batch=batch, preset="lesson")
        assert grown.steps.tokens_per_s[at] == pytest.approx(alone["decode"]["tokens_per_s"], rel=1e-12)
        held = alone["capacity"]["resident_weight_bytes"] + batch * alone["capacity"]["per_request_bytes"]
        assert grown.weights[at] + grown.kv[at] + grown.state[at] + grown.conv[at] == held
    assert grown.steps.tokens_per_s[1] == pytest.approx(2304.0, abs=0.05)


def test_over_context_gives_both_crossovers_of_the_lesson() -> None:
    grown = growth.over_context(catalogue.load(ANCHOR), (767, 768, 769, 4607, 4608, 4609), **RULES)
    assert grown.kv_replaced is not None
    assert list(np.sign(grown.kv_replaced - grown.state_held)) == [-1, 0, 1, 1, 1, 1]
    assert list(np.sign(grown.kv_moved - grown.state_moved)) == [-1, -1, -1, -1, 0, 1]
    assert grown.state_held[0] == 150_994_944
    assert replaced_kv_bytes_per_position(catalogue.load(ANCHOR)) == 196_608


def test_each_kind_of_memory_has_its_shape() -> None:
    window = growth.over_context(catalogue.load("mistralai/Mistral-7B-v0.1"), (4096, 8192), **RULES)
    assert window.held[0] == window.held[1]
    latent = growth.over_context(catalogue.load("deepseek-ai/DeepSeek-V3"), (1, 1000), **RULES)
    assert list(latent.kv_held) == [70_272, 70_272_000]
    plain = growth.over_context(catalogue.load("Qwen/Qwen3-32B"), (1,), **RULES)
    assert plain.kv_held[0] == 4 * 65_536
    assert plain.kv_replaced is None
    assert plain.state_held[0] == 0


def test_kinds_of_bytes_add_up_to_the_total() -> None:
    for model in (ANCHOR, "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-Linear-48B-A3B-Instruct"):
        step = predict(model, "h100-sxm", batch=7)["decode"]
        kinds = growth.by_kind(step["bytes"], step["parts"])
        assert sum(kinds.values()) == step["bytes"]["total"]
        assert min(kinds.values()) >= 0
        grown = growth.over_context(catalogue.load(model), (1, 500, 8000), **RULES)
        assert sum(grown.parts_held.values()).tolist() == grown.held.tolist()  # type: ignore[attr-defined]
        assert sum(grown.parts_moved.values()).tolist() == grown.moved.tolist()  # type: ignore[attr-defined]


def test_windows_latents_and_experts_are_kinds_of_their_own() -> None:
    """By hand from the configs: gpt-oss-20b has 12 of 24 layers with a window of 128, 8 KV heads of 64."""
    rules = {"formats": Formats(), "convention": "engine"}
    step = predict("openai/gpt-oss-20b", "h100-sxm", preset="engine", context=1000, kv="bf16", weights="bf16")["decode"]
    assert step["parts"]["window"] == 12 * 2 * 8 * 64 * 2 * (127 + 1)
    # 4 of 32 experts a token: gate, up and down of 2880 x 2880 with their biases, in 24 layers.
    assert step["parts"]["experts"] == 24 * 4 * (3 * 2880 * 2880 + 3 * 2880) * 2
    grown = growth.over_context(catalogue.load("openai/gpt-oss-20b"), (64, 1000), **rules)  # type: ignore[arg-type]
    assert list(grown.parts_held["window"]) == [12 * 2048 * 64, 12 * 2048 * 128]
    assert list(grown.parts_held["kv"]) == [12 * 2048 * 64, 12 * 2048 * 1000]
    latent = growth.over_context(catalogue.load("deepseek-ai/DeepSeek-V3"), (1000,), **rules)  # type: ignore[arg-type]
    assert latent.parts_held["latent"][0] == 61 * (512 + 64) * 2 * 1000
    assert latent.parts_held["kv"][0] == 0


def _token(device: str, of: str = "weights", **changes: int):  # type: ignore[no-untyped-def]
    asked = {"prompt_tokens": 4, "context": 4096, "batch": 1} | changes
    step = work(catalogue.load(ANCHOR), of, **asked, **RULES)  # type: ignore[arg-type]
    return estimate(step, hardware.load(device), **RULES)


def test_the_two_estimates_of_the_lesson() -> None:
    h100 = _token("h100-sxm")
    assert h100.compute_tokens_per_s == pytest.approx(19_308, abs=0.5)
    assert h100.memory_tokens_per_s == pytest.approx(65.37, abs=0.005)
    assert h100.bound == "memory"
    assert h100.tokens_per_s == h100.memory_tokens_per_s
    assert h100.ridge_flop_per_byte == pytest.approx(295.37, abs=0.005)
    change = Change.between(_token("a100-sxm4-80gb"), h100)
    assert (change.compute, change.memory) == (pytest.approx(3.1715, abs=5e-5), pytest.approx(1.6430, abs=5e-5))
    assert change.both == change.memory
    assert Change.between(h100, _token("h200-sxm")).memory == pytest.approx(1.4328, abs=5e-5)


def test_a_long_prompt_turns_the_estimates_around() -> None:
    long = _token("h100-sxm", "prefill", prompt_tokens=2048)
    assert long.bound == "compute"
    assert long.time_s == pytest.approx(0.106903, rel=1e-5)
    assert long.tokens == 2048


def test_a_decode_step_is_predicts() -> None:
    step = _token("h100-sxm", "decode", batch=58)
    assert step.time_s == predict(ANCHOR, "h100-sxm", batch=58, preset="lesson")["decode"]["time_s"]
    assert step.room_bytes == 80_000_000_000 - _room(58).held.total


def test_every_device_is_listed_once_and_those_without_a_peak_are_not() -> None:
    step = work(catalogue.load(ANCHOR), "weights", prompt_tokens=4, context=4096, batch=1, **RULES)
    found = estimates(step, hardware.all(), **RULES)
    assert len({each.device.id for each in found}) == len(found)
    left_out = {device.id for device in hardware.all()} - {each.device.id for each in found}
    assert left_out == {device.id for device in hardware.all() if not {"bf16", "fp16", "fp32"} & set(device.peaks)}
    assert [each.time_s for each in found] == sorted(each.time_s for each in found)


def test_this_machine_answers_like_a_listed_device() -> None:
    small, large = (MeasuredDevice.of(ceilings(), size) for size in (500_000, 500_000_000))
    assert (small.bandwidth_bytes_per_s, large.bandwidth_bytes_per_s) == (100e9, 18e9)
    assert large.peak_flops_per_s("fp32") == large.peak_flops_per_s("float32") == 100e9
    assert large.peak_flops_per_s("bf16") is None
    document = predict("tiny-3.7m", large, weights="fp32")
    assert document["hardware"] == "this-machine"
    assert document["ridge_flop_per_byte"] == pytest.approx(100 / 18)
    with pytest.raises(LabError):
        roof_of(MeasuredDevice("x", 1e9, None, {}), Formats())


def test_a_run_has_its_prefill_and_its_median_step() -> None:
    prefill, decode = points(run())
    assert (prefill.phase, prefill.time_s) == ("prefill", 0.04)
    assert (decode.phase, decode.time_s, decode.batch) == ("decode", 0.025, 1)
    assert decode.flops_per_s == 200e6 / 0.025
    assert decode.tokens_per_s == pytest.approx(40)
    assert decode.intensity == pytest.approx(200e6 / 360e6)
    assert (prefill.kv_held_bytes, decode.kv_held_bytes) == (1e6, 2e6)


def test_the_roof_over_an_intensity() -> None:
    roof = Roof(100.0, 10.0)
    assert [roof.attainable_flops_per_s(x) for x in (1, 10, 11)] == [10, 100, 100]


def test_convention_objects_are_as_good_as_their_names() -> None:
    spec = catalogue.load(ANCHOR)
    by_name = growth.over_context(spec, (4096,), formats=BF16, convention="lesson")
    assert growth.over_context(spec, (4096,), formats=BF16, convention=LESSON).held == by_name.held
