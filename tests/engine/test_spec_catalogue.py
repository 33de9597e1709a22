"""The catalogue: every config is read, and its parameter count equals the published total to the unit."""

from __future__ import annotations

import pytest
import torch
import transformers as tf

from engine import catalogue
from engine.errors import LabError
from engine.ledger import Formats, resident
from engine.ledger.formats import WEIGHT_LAYOUTS
from engine.spec import Experts, Spec, read

PUBLIC = [model_id for model_id in catalogue.ids() if model_id not in catalogue.OWN]

# Text parameters (unique) as counted by transformers from the same configs, and what a token multiplies, in billions
# with three digits (matrices alone); from the table of checkpoints the project keeps.
TEXT = {
    "HuggingFaceTB/SmolLM2-1.7B": (1_711_376_384, "1.711"),
    "HuggingFaceTB/SmolLM2-135M": (134_515_008, "0.134"),
    "HuggingFaceTB/SmolLM2-360M": (361_821_120, "0.362"),
    "Qwen/Qwen2.5-0.5B": (494_032_768, "0.494"),
    "Qwen/Qwen3-0.6B": (596_049_920, "0.596"),
    "Qwen/Qwen3-1.7B": (1_720_574_976, "1.720"),
    "Qwen/Qwen3-14B": (14_768_307_200, "13.990"),
    "Qwen/Qwen3-30B-A3B": (30_532_122_624, "3.042"),
    "Qwen/Qwen3-32B": (32_762_123_264, "31.984"),
    "Qwen/Qwen3-4B": (4_022_468_096, "4.022"),
    "Qwen/Qwen3-8B": (8_190_735_360, "7.568"),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (79_674_391_296, "3.562"),
    "Qwen/Qwen3.5-0.8B": (752_393_024, "0.752"),
    "Qwen/Qwen3.5-27B": (26_895_998_464, "25.622"),
    "Qwen/Qwen3.5-35B-A3B": (34_660_610_688, "2.945"),
    "Qwen/Qwen3.8-27B": (26_895_998_464, "25.622"),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": (1_100_048_384, "1.034"),
    "deepseek-ai/DeepSeek-V3": (671_026_419_200, "36.625"),
    "google/gemma-3-1b-it": (999_885_952, "1.000"),
    "google/gemma-3-270m": (268_098_176, "0.268"),
    "google/gemma-3-27b-it": (27_009_346_304, "27.008"),
    "meta-llama/Llama-2-7b-hf": (6_738_415_616, "6.607"),
    "meta-llama/Llama-3.1-70B": (70_553_706_496, "69.502"),
    "meta-llama/Llama-3.1-8B": (8_030_261_248, "7.505"),
    "meta-llama/Llama-3.2-1B": (1_235_814_400, "1.236"),
    "microsoft/phi-4": (14_659_507_200, "14.145"),
    "mistralai/Mistral-7B-v0.1": (7_241_732_096, "7.110"),
    "moonshotai/Kimi-K2-Instruct": (1_026_408_232_448, "31.686"),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (49_122_681_728, "3.106"),
    "openai-community/gpt2": (124_439_808, "0.124"),
    "openai/gpt-oss-120b": (116_829_156_672, "5.131"),
    "openai/gpt-oss-20b": (20_914_757_184, "3.607"),
}
# (KV bytes a token in full-attention layers, and in window layers, BF16; recurrent state in MB, FP32)
HELD = {
    "Qwen/Qwen3-0.6B": (114_688, 0, 0.0),
    "Qwen/Qwen3-30B-A3B": (98_304, 0, 0.0),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (24_576, 0, 75.5),
    "Qwen/Qwen3.5-0.8B": (12_288, 0, 18.9),
    "Qwen/Qwen3.5-35B-A3B": (20_480, 0, 62.9),
    "Qwen/Qwen3.8-27B": (65_536, 0, 151.0),
    "deepseek-ai/DeepSeek-V3": (70_272, 0, 0.0),
    "google/gemma-3-1b-it": (4_096, 22_528, 0.0),
    "google/gemma-3-270m": (3_072, 15_360, 0.0),
    "google/gemma-3-27b-it": (81_920, 425_984, 0.0),
    "meta-llama/Llama-2-7b-hf": (524_288, 0, 0.0),
    "meta-llama/Llama-3.1-8B": (131_072, 0, 0.0),
    "mistralai/Mistral-7B-v0.1": (0, 131_072, 0.0),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (8_064, 0, 41.9),
    "openai-community/gpt2": (36_864, 0, 0.0),
    "openai/gpt-oss-120b": (36_864, 36_864, 0.0),
    "openai/gpt-oss-20b": (24_576, 24_576, 0.0),
}


def matrices_per_token(spec: Spec) -> int:
    """Matrices that one token is multiplied with: of the experts only those it is routed to."""
    total = spec.head.parameters
    for layer, count in spec.groups:
        for weight in spec.layer_weights(layer):
            if weight.use != "matrix":
                continue
            share = weight.parameters
            if weight.role == "experts":
                assert isinstance(layer.feed_forward, Experts)
                share = share // layer.feed_forward.experts * layer.feed_forward.top_k
            total += share * count
    return total


def test_all_thirty_five_configs_and_the_two_that_published_rows_need_are_there() -> None:
    assert len(PUBLIC) == 37
    assert {"meta-llama/Llama-2-70b-hf", "Qwen/Qwen2.5-7B"} < set(PUBLIC)
    assert all(catalogue.entry(model_id)["source"] for model_id in catalogue.ids())


@pytest.mark.parametrize("model_id", catalogue.ids())
def test_checkpoint_parameters_equal_the_published_total_to_the_unit(model_id: str) -> None:
    entry = catalogue.entry(model_id)
    if "published_parameters" not in entry:
        # Written down, not hidden: the entry says why there is nothing to compare with.
        assert entry.get("note") or model_id in catalogue.OWN
        return
    beside = sum(entry.get("published_beside", {}).values())
    assert catalogue.load(model_id).parameters.checkpoint + beside == entry["published_parameters"]


@pytest.mark.parametrize("model_id", TEXT)
def test_text_parameters_and_those_of_a_token(model_id: str) -> None:
    spec = catalogue.load(model_id)
    text, per_token = TEXT[model_id]
    assert spec.parameters.trunk == text
    assert f"{matrices_per_token(spec) / 1e9:.3f}" == per_token


@pytest.mark.parametrize("model_id", HELD)
def test_what_a_token_and_a_sequence_keep(model_id: str) -> None:
    spec = catalogue.load(model_id)
    full, windowed, state = HELD[model_id]
    # Far beyond every window a further token adds to the full layers alone; the first one adds to all.
    far = 1 << 20
    assert resident(spec, max_tokens=far + 1).kv_allocated - resident(spec, max_tokens=far).kv_allocated == full
    assert resident(spec, max_tokens=1).kv_allocated == full + windowed
    assert round(resident(spec).state / 1e6, 1) == state


@pytest.mark.parametrize(
    ("model_id", "published_bytes"),
    [("openai/gpt-oss-20b", 13_761_264_768), ("openai/gpt-oss-120b", 65_248_815_744)],
)
def test_quantised_checkpoints_take_the_published_bytes(model_id: str, published_bytes: int) -> None:
    spec = catalogue.load(model_id)
    assert resident(spec, formats=Formats.own(spec)).weights == published_bytes


def test_the_scales_of_deepseek_s_fp8_blocks_are_those_in_its_files() -> None:
    spec = catalogue.load("deepseek-ai/DeepSeek-V3")
    formats = Formats.own(spec)
    layered = [(w, n) for layer, n in spec.groups for w in spec.layer_weights(layer)]
    layered += [(w, 1) for extra in spec.extras for w in extra.weights if w.name != "eh_proj.weight"]
    scales = 0
    for weight, count in layered:
        if weight.use == "matrix" and weight.role in formats.quantised_roles(spec):
            plain = WEIGHT_LAYOUTS["fp8-tensor"].size(1, weight.parameters) - 4
            scales += (formats.weight_bytes(weight, spec) - plain) // 4 * count
    assert scales == 41_540_496


@pytest.mark.parametrize("model_id", ["mistralai/Mixtral-8x7B-v0.1", "nvidia/Nemotron-H-56B-Base-8K"])
def test_where_no_total_is_published_transformers_counts_the_same(model_id: str) -> None:
    config = catalogue.config(model_id)
    kind = tf.CONFIG_MAPPING[config["model_type"]]
    config["head_dim"] = config.get("attention_head_dim")
    with torch.device("meta"):
        model = tf.AutoModelForCausalLM.from_config(kind(**config))
    assert catalogue.load(model_id).parameters.trunk == sum(p.numel() for p in model.parameters())


def test_what_gemma_s_published_configs_leave_out_is_what_its_code_assumes() -> None:
    """gemma-3-4b-it's config.json has five numbers in its text part; 4,300,079,472 parameters are published for it."""
    given = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    spec = read({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **given}})
    assert spec.parameters.checkpoint == 4_300_079_472


def test_the_lab_s_own_models() -> None:
    assert catalogue.ids()[:2] == ["smollm2-135m", "tiny-3.7m"]
    tiny = catalogue.load("tiny-3.7m")
    assert f"{tiny.parameters.trunk / 1e6:.1f} M" == "3.7 M"
    assert tiny.vocab_size >= 256 + 2  # every byte, and a beginning and an end
    assert catalogue.load("smollm2-135m").parameters == catalogue.load("HuggingFaceTB/SmolLM2-135M").parameters


def test_an_unknown_id_is_one_clear_sentence() -> None:
    with pytest.raises(LabError, match=r"There is no model qwen/Qwen3-32; is Qwen/Qwen3-32B meant\?"):
        catalogue.load("qwen/Qwen3-32")
    with pytest.raises(LabError, match=r"There is no model gpt-5; .*python -m engine models"):
        catalogue.load("gpt-5")


def test_a_caller_cannot_change_the_catalogue() -> None:
    catalogue.config("tiny-3.7m")["hidden_size"] = 1
    assert catalogue.config("tiny-3.7m")["hidden_size"] == 256
