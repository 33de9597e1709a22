"""Times, bounds, capacity, crossovers and sweeps against numbers found another way; and how fast they are."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from engine import catalogue, hardware, roofline
from engine.errors import LabError
from engine.ledger import ENGINE, LESSON, Formats, decode, prefill, resident
from engine.predict import PRESETS, predict, roof_of
from engine.roofline import Roof

ANCHOR = catalogue.load("Qwen/Qwen3.8-27B")
TINY = catalogue.load("tiny-3.7m")
H100 = Roof(989.5e12, 3.35e12)
SMALL_CPU = Roof(150e9, 15e9)


def test_the_floor_is_the_larger_limit_of_the_whole_step() -> None:
    short, long = prefill(ANCHOR, 4), prefill(ANCHOR, 2048)
    assert roofline.floor_ns(short, H100) == pytest.approx(short.bytes.total / 3.35e12 * 1e9)
    assert roofline.floor_ns(long, H100) == pytest.approx(long.flops / 989.5e12 * 1e9)
    assert [roofline.bound(step, H100) for step in (short, long)] == ["memory", "compute"]


def test_the_sum_of_every_op_s_floor_is_never_less() -> None:
    for step in (prefill(ANCHOR, 4), prefill(ANCHOR, 300), prefill(ANCHOR, 4096), decode(ANCHOR, 4097, batch=58)):
        assert roofline.per_op_floor_ns(step, H100) >= roofline.floor_ns(step, H100) * (1 - 1e-12)


def test_the_largest_batch_is_the_last_that_fits() -> None:
    most = roofline.largest_batch(ANCHOR, 80e9, 4096, convention=LESSON)
    held = [
        resident(ANCHOR, batch=batch, max_tokens=4096, convention=LESSON, whole_checkpoint=True).total
        for batch in (most, most + 1)
    ]
    assert held[0] <= 80e9 < held[1]
    assert roofline.largest_batch(ANCHOR, 40e9, 4096) == 0


def test_a_crossing_is_the_first_context_that_crosses() -> None:
    for convention in (LESSON, ENGINE):
        crossing = roofline.kv_equals_state_context(ANCHOR, convention=convention)
        assert crossing is not None
        states = decode(ANCHOR, 2, convention=convention).bytes
        traffic = states.state_read + states.state_write + states.conv_read + states.conv_write
        read = [decode(ANCHOR, cached + 1, convention=convention).bytes.kv_read for cached in (crossing - 1, crossing)]
        assert read[0] < traffic <= read[1]
    assert roofline.kv_equals_state_context(TINY) is None


@pytest.mark.parametrize(
    "model_id", ["Qwen/Qwen3.8-27B", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"]
)
@pytest.mark.parametrize("roof", [H100, SMALL_CPU], ids=["h100", "cpu"])
def test_the_first_prompt_bound_by_compute(model_id: str, roof: Roof) -> None:
    spec = catalogue.load(model_id)
    first = roofline.compute_bound_prompt_tokens(spec, roof, convention=ENGINE)
    assert first is not None
    assert [roofline.bound(prefill(spec, tokens), roof) for tokens in (first - 1, first)] == ["memory", "compute"]


def test_a_prompt_beyond_the_table_is_searched_for_and_one_beyond_the_context_is_not_found() -> None:
    starved = Roof(1e15, 2e10)
    far = roofline.compute_bound_prompt_tokens(ANCHOR, starved, convention=ENGINE)
    assert far is not None
    assert far > roofline.PROMPTS
    assert [roofline.bound(prefill(ANCHOR, t), starved) for t in (far - 1, far)] == ["memory", "compute"]
    assert roofline.compute_bound_prompt_tokens(TINY, Roof(1e20, 1e9), convention=ENGINE) is None
    # One that would turn at about 5000 tokens, were its context not 2048.
    assert roofline.compute_bound_prompt_tokens(TINY, Roof(2.6e12, 1e9), convention=ENGINE) is None
    assert roofline.bound(prefill(TINY, 6000), Roof(2.6e12, 1e9)) == "compute"


@pytest.mark.parametrize("convention", [LESSON, ENGINE])
def test_the_limit_is_where_large_batches_go(convention: object) -> None:
    limit = roofline.limit_intensity(decode(ANCHOR, 4097, convention=convention))  # type: ignore[arg-type]
    far = decode(ANCHOR, 4097, batch=10**9, convention=convention)  # type: ignore[arg-type]
    assert far.intensity == pytest.approx(limit, rel=1e-4)
    assert far.intensity < limit
    of_many = roofline.limit_intensity(decode(ANCHOR, 4097, batch=64, convention=convention))  # type: ignore[arg-type]
    assert of_many == pytest.approx(limit, rel=1e-12)


@pytest.mark.parametrize("model_id", ["Qwen/Qwen3.8-27B", "google/gemma-3-27b-it", "openai/gpt-oss-120b"])
def test_a_sweep_is_its_points(model_id: str) -> None:
    spec = catalogue.load(model_id)
    batches, contexts = [1, 5, 300], [2, 129, 4000]
    swept = roofline.sweep(spec, H100, batch=np.array(batches)[:, None], context=np.array(contexts)[None, :])
    for row, batch in enumerate(batches):
        for column, context in enumerate(contexts):
            step = decode(spec, context, batch=batch)
            assert swept.flops[row, column] == step.flops
            assert swept.bytes[row, column] == step.bytes.total
            assert swept.time_s[row, column] * 1e9 == pytest.approx(roofline.floor_ns(step, H100))
            assert swept.tokens_per_s[row, column] == pytest.approx(batch / swept.time_s[row, column])
            assert swept.compute_bound[row, column] == (roofline.bound(step, H100) == "compute")
            held = resident(spec, batch=batch, max_tokens=context, whole_checkpoint=True)
            assert swept.resident_bytes[row, column] == held.total


def test_a_prompt_sweep_is_its_points() -> None:
    lengths = np.array([1, 4, 295, 2048])
    swept = roofline.prompt_sweep(ANCHOR, H100, tokens=lengths, convention=LESSON)
    steps = [prefill(ANCHOR, int(tokens), convention=LESSON) for tokens in lengths]
    assert swept.time_s * 1e9 == pytest.approx([roofline.floor_ns(step, H100) for step in steps])
    assert swept.intensity == pytest.approx([step.intensity for step in steps])


def test_sweeps_of_nothing_are_refused() -> None:
    with pytest.raises(LabError, match="at least 1"):
        roofline.sweep(TINY, H100, batch=[0, 1], context=[1, 2])
    with pytest.raises(LabError, match="at least 1"):
        roofline.prompt_sweep(TINY, H100, tokens=[0])


def best_cpu_s(run: object, times: int = 5) -> float:
    """Least processor time of a few calls: what the work costs, whatever else the machine does."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        run()  # type: ignore[operator]
        spent.append(time.process_time() - start)
    return min(spent)


def test_a_prediction_and_a_sweep_are_quick() -> None:
    """1 ms a point and 50 ms for 200 x 200 are asked for; the bounds leave room for a slow machine."""
    contexts = iter(range(1000, 10_000))
    predict("deepseek-ai/DeepSeek-V3", "h100-sxm")

    def twenty_points() -> None:
        for _ in range(20):
            predict("deepseek-ai/DeepSeek-V3", "h100-sxm", context=next(contexts))

    assert best_cpu_s(twenty_points) / 20 < 5e-3
    batch, context = np.arange(1.0, 201)[:, None], np.arange(1.0, 201)[None, :] * 100
    for model_id in ("Qwen/Qwen3.8-27B", "deepseek-ai/DeepSeek-V3"):
        spec = catalogue.load(model_id)
        assert best_cpu_s(lambda spec=spec: roofline.sweep(spec, H100, batch=batch, context=context)) < 0.25  # type: ignore[misc]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model_id", catalogue.ids())
def test_predict_has_the_documented_fields_for_every_model(model_id: str, preset: str) -> None:
    document = predict(model_id, "h100-sxm", preset=preset, prompt_tokens=64, context=256, batch=2)
    moved = {
        "weights",
        "kv_read",
        "kv_write",
        "state_read",
        "state_write",
        "conv_read",
        "conv_write",
        "logits",
        "total",
    }
    timed = {"time_s", "flops", "bytes", "intensity", "bound"}
    assert {"model", "hardware", "preset", "ridge_flop_per_byte", "params", "prefill", "decode"} <= document.keys()
    assert {"matmul", "trunk", "checkpoint"} <= document["params"].keys()
    assert timed | {"tokens"} <= document["prefill"].keys()
    assert timed | {"context", "batch", "tokens_per_s", "weights_only", "attention"} <= document["decode"].keys()
    for phase in ("prefill", "decode"):
        assert document[phase]["bytes"].keys() == moved
        assert sum(document[phase]["bytes"].values()) == 2 * document[phase]["bytes"]["total"]
    assert {"time_s", "intensity"} <= document["decode"]["weights_only"].keys()
    capacity = {"memory_bytes", "usable_memory_bytes", "resident_weight_bytes", "per_request_bytes", "max_batch"}
    assert document["capacity"].keys() == capacity
    limits = {"intensity_at_infinite_batch", "kv_equals_state_context", "compute_bound_prompt_tokens"}
    assert limits <= document["limits"].keys()


def test_engine_counts_usable_memory_and_lesson_the_marketed_one() -> None:
    known = next(device for device in hardware.all() if device.usable_memory_bytes and device.peak_flops_per_s("bf16"))
    sizes = {}
    for preset in PRESETS:
        capacity = predict("Qwen/Qwen3-0.6B", known.id, preset=preset, context=2048)["capacity"]
        per_request, weights = capacity["per_request_bytes"], capacity["resident_weight_bytes"]
        sizes[preset] = (capacity["max_batch"], per_request, weights)
    batch, per_request, weights = sizes["engine"]
    assert batch == (known.usable_memory_bytes - weights) // per_request
    batch, per_request, weights = sizes["lesson"]
    assert batch == (known.memory_bytes - weights) // per_request


def test_weight_only_formats_are_timed_against_the_dtype_they_are_multiplied_in() -> None:
    device = hardware.load("h100-sxm")
    for weights in ("int4", "fp8", "nvfp4", "int8"):
        assert roof_of(device, Formats(weights)) == (Roof(989.5e12, 3.35e12), "bf16")
    assert roof_of(device, Formats("fp32"))[1] == "fp32"


def test_a_device_without_a_peak_for_the_dtype() -> None:
    h100 = hardware.load("h100-sxm")
    without = h100.model_copy(update={"peaks": {"fp32": h100.peaks["fp32"]}})
    assert roof_of(without, Formats())[1] == "fp32"
    with pytest.raises(LabError, match="No peak rate of h100-sxm for bf16 can be stood by"):
        roof_of(h100.model_copy(update={"peaks": {}}), Formats())


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ({"prompt_tokens": 0}, "The value of prompt tokens is 0; it has to be a whole number from 1"),
        ({"context": -1}, "The value of context is -1"),
        ({"batch": 1.5}, "The value of batch is 1.5"),
        ({"batch": 10**12}, "The value of batch is 1000000000000"),
        ({"preset": "folklore"}, "There is no preset folklore; known are lesson, engine"),
        ({"weights": "int3"}, "There is no weight format int3"),
        ({"tp": 0}, "0 devices cannot share this model; name 1 to 24"),
        ({"tp": 7000}, "7000 devices cannot share this model; name 1 to 24"),
        ({"tp": 10**50}, "cannot share this model; name 1 to 24"),
    ],
)
def test_impossible_predictions_are_refused_in_a_sentence(case: dict[str, object], says: str) -> None:
    with pytest.raises(LabError) as caught:
        predict("Qwen/Qwen3.8-27B", "h100-sxm", **case)  # type: ignore[arg-type]
    assert says in str(caught.value)


def test_a_device_of_one_s_own_and_a_spec_of_one_s_own() -> None:
    device = hardware.from_form({"name": "mine", "bandwidth_bytes_per_s": 1e11, "fp32_flops_per_s": 1e13})
    document = predict(replace(TINY, tied=False), device, batch=4)
    assert document["hardware"] == "custom-mine"
    assert document["model"] == "LlamaForCausalLM"
    assert document["capacity"]["max_batch"] is None
