"""`random:ID@layers=N`: true shapes, made-up values, little more memory than they take, never more than there is."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from family_helpers import CONFIGS

import engine
from engine import checkpoint, fitting, ledger, random_shapes, spec, tokenizer, weights
from engine.errors import LabError
from engine.model import Model, supported
from engine.random_weights import BLOCK, RandomTensors
from engine.source import Source
from engine.spec import Attention, GatedDeltaNet

ROOT = Path(__file__).parents[2]
FAMILIES = [
    "Qwen/Qwen3.8-27B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3.5-35B-A3B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "google/gemma-3-27b-it",
    "microsoft/phi-4",
    "mistralai/Mixtral-8x7B-v0.1",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "nvidia/Nemotron-H-56B-Base-8K",
    "openai-community/gpt2",
    "openai/gpt-oss-20b",
]


def source(name: str) -> Source:
    return checkpoint.resolve(name, allow_paths=True)


# --- the values -------------------------------------------------------------------------------------


def test_a_large_tensor_is_windows_of_one_block() -> None:
    rows, columns = 50_000, 256  # three blocks' worth
    tensor = RandomTensors({"a.weight": (rows, columns)})["a.weight"]
    assert tensor.shape == (rows, columns)
    assert tensor.untyped_storage().nbytes() <= 4 * BLOCK
    assert tensor.std().item() == pytest.approx(columns**-0.5, rel=0.01)
    assert abs(tensor.mean().item()) < 1e-4
    starts = tensor[:, :4].contiguous()
    assert len(torch.unique(starts, dim=0)) == rows, "no two rows are the same"
    x = torch.randn(columns, generator=torch.Generator().manual_seed(0))
    assert (tensor @ x).std().item() == pytest.approx((x.norm() / columns**0.5).item(), rel=0.05)


def test_a_tensor_of_more_rows_than_a_block_has_numbers() -> None:
    tensor = RandomTensors({"a.weight": (BLOCK + 5, 2)})["a.weight"]
    assert len(torch.unique(tensor[-1000:], dim=0)) == 1000
    assert tensor.untyped_storage().nbytes() <= 4 * (BLOCK + 7)


def test_a_tensor_of_many_dimensions() -> None:
    tensor = RandomTensors({"experts.up_proj": (16, 600, 1_000)}, torch.bfloat16)["experts.up_proj"]
    assert (tensor.shape, tensor.dtype) == ((16, 600, 1_000), torch.bfloat16)
    assert not torch.equal(tensor[0], tensor[1])


def test_every_name_has_numbers_of_its_own_and_always_the_same() -> None:
    names = [f"model.layers.{layer}.mlp.{part}.weight" for layer in (0, 1) for part in ("up_proj", "down_proj")]
    shapes = dict.fromkeys(names, (4, 6))
    made = {name: tensor.clone() for name, tensor in RandomTensors(shapes).items()}
    assert len({tuple(tensor.flatten().tolist()) for tensor in made.values()}) == 4
    again = RandomTensors(shapes)
    assert all(torch.equal(again[name], made[name]) for name in reversed(names)), "in any order"


def test_what_scales_is_one_and_what_is_added_is_zero() -> None:
    shapes = {
        "model.layers.0.input_layernorm.weight": (8,),
        "model.layers.0.linear_attn.norm.weight": (8,),
        "model.layers.0.linear_attn.A_log": (4,),
        "model.layers.0.linear_attn.dt_bias": (4,),
        "model.layers.0.self_attn.q_proj.bias": (4,),
        "model.layers.0.mlp.experts.down_proj_bias": (3, 4),
        "model.norm.weight": (8,),
    }
    plain, centred = RandomTensors(shapes), RandomTensors(shapes, zero_centred=True)
    for name, shape in shapes.items():
        scales = name.endswith("norm.weight")
        assert torch.equal(plain[name], torch.full(shape, 1.0 if scales else 0.0)), name
        gated = "linear_attn.norm" in name
        assert torch.equal(centred[name], torch.full(shape, 1.0 if gated else 0.0)), name


@pytest.mark.parametrize("model", FAMILIES)
def test_every_family_gets_exactly_the_parameters_of_its_spec(model: str) -> None:
    found = source(f"random:{model}@layers=4")
    supported.check(found.spec)
    tensors = weights.tensors(found)
    assert sum(math.prod(shape) for shape in fitting.wanted_shapes(found.spec).values()) == found.spec.parameters.trunk
    assert set(tensors) == set(fitting.wanted_shapes(found.spec))


@pytest.mark.parametrize("name", ["random:openai-community/gpt2@layers=2", "random:Qwen/Qwen3.5-0.8B@layers=4"])
def test_a_random_model_runs_at_its_true_widths(name: str) -> None:
    made = engine.load(name, max_tokens=32)
    logits = made.prefill(torch.tensor([[1, 2, 3]]))
    assert logits.shape == (1, made.spec.vocab_size)
    assert torch.isfinite(logits).all()
    assert 0.1 < logits.std().item() < 10
    assert torch.isfinite(made.decode(logits.argmax(-1))).all()
    expected = ledger.resident(source(name).spec, batch=1, max_tokens=32, formats=ledger.Formats("fp32", kv="fp32"))
    assert made.resident_weight_bytes == expected.weights


@pytest.mark.parametrize("kind", ["gpt-oss", "mixtral", "qwen3-next", "gemma3", "phi3"])
def test_made_up_values_are_named_as_the_readers_ask(kind: str) -> None:
    """A family whose files fuse, turn or number its matrices: made-up ones must not be taken apart as those are."""
    tiny = spec.read(CONFIGS[kind]().to_dict())
    tensors = RandomTensors(fitting.wanted_shapes(tiny), zero_centred=tiny.recipe.zero_centred)
    made = Model.from_tensors(tiny, tensors, max_tokens=8)
    assert torch.isfinite(made.prefill(torch.tensor([[1, 2, 3]]))).all()
    formats = ledger.Formats("fp32", kv="fp32")
    assert made.resident_weight_bytes == ledger.resident(tiny, formats=formats).weights


def test_loading_takes_little_more_than_the_model() -> None:
    """Its embedding is 1 GB: a second copy of it would show."""
    program = """
        import resource, sys
        import engine
        engine.load("random:smollm2-135m@layers=1", max_tokens=8)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        model = engine.load(sys.argv[1], max_tokens=8)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, model.resident_weight_bytes // 1024)
    """
    name = "random:Qwen/Qwen3.5-0.8B@layers=2"
    command = [sys.executable, "-c", textwrap.dedent(program), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    grown, held = map(int, done.stdout.split())
    assert held > 1_000_000
    assert grown < held + 120_000  # the last few blocks, and what torch takes to compute


# --- which layers -----------------------------------------------------------------------------------


def test_the_first_layers_keep_their_pattern() -> None:
    part = source("random:Qwen/Qwen3.8-27B@layers=5").spec
    kinds = [type(layer.mixer) for layer in part.layers]
    assert kinds == [GatedDeltaNet, GatedDeltaNet, GatedDeltaNet, Attention, GatedDeltaNet]
    assert part.layers == source("random:Qwen/Qwen3.8-27B").spec.layers[:5]


def test_a_name_has_one_spelling() -> None:
    assert source("random:smollm2-135m@layers=04").id == "random:smollm2-135m@layers=4"


@pytest.mark.parametrize("layers", ["0", "65", "99999999999", "9" * 900])
def test_layers_that_it_does_not_have_are_refused_with_those_it_has(layers: str) -> None:
    with pytest.raises(LabError, match=r"^Qwen/Qwen3.8-27B has 64 layers; ask for 1 to 64 of them.$"):
        source(f"random:Qwen/Qwen3.8-27B@layers={layers}")


@pytest.mark.parametrize(
    "name", ["random:", "random:a@layers=", "random:a@layers=x", "random:a@b", "random:a@layers=-1"]
)
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(LabError, match="is not random:ID or random:ID@layers=N"):
        source(name)


def test_a_visitor_of_the_web_app_may_run_what_is_offered_and_nothing_else() -> None:
    for name in random_shapes.OFFERED:
        assert checkpoint.resolve(name, allow_paths=False).weights == "random"
        checkpoint.require(name, allow_paths=False)
    for name in ("random:Qwen/Qwen3.8-27B", "random:Qwen/Qwen3.8-27B@layers=5", "random:nobody/knows"):
        with pytest.raises(LabError, match="There is no model random:"):
            checkpoint.require(name, allow_paths=False)


# --- what fits --------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_with_the_most_layers_that_do() -> None:
    whole = source("random:deepseek-ai/DeepSeek-V3")
    with pytest.raises(LabError, match=r"needs 2684\.\d\d GB of memory and .* GB are free: .*@layers=") as caught:
        engine.load(whole.id)
    most = int(str(caught.value.sentence.params["part"]).rpartition("=")[2])
    free = float(str(caught.value.sentence.params["free"]))
    for layers, fits in ((most, True), (most + 1, False)):
        part = source(f"random:deepseek-ai/DeepSeek-V3@layers={layers}").spec
        assert (part.parameters.trunk * 4 / 1e9 <= free + 0.01) is fits


@pytest.mark.parametrize(("free", "most"), [(0, 0), (149, 0), (150, 1), (249, 1), (250, 2), (3049, 29)])
def test_the_most_layers_that_fit(free: int, most: int) -> None:
    found = source("random:smollm2-135m")
    with pytest.raises(LabError, match=f"@layers={most} is the most" if most else "not even one of its layers fits"):
        random_shapes.check_fits(found.id, found.spec, lambda part: 50 + 100 * part.num_layers, free)


def test_what_fits_passes_and_what_is_not_random_is_others_business() -> None:
    whole = source("random:smollm2-135m").spec
    random_shapes.check_fits("random:smollm2-135m", whole, lambda part: 100, 100)
    random_shapes.check_fits("smollm2-135m", whole, lambda part: 101, 100)


# --- words ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_demo_home")
def test_models_of_qwens_kind_speak_its_vocabulary() -> None:
    words = tokenizer.load(source("random:Qwen/Qwen3.8-27B@layers=1"))
    assert words.encode("为什么读得快") == tokenizer.qwen().encode("为什么读得快")
    assert words.decode(words.encode("为什么读得快")) == "为什么读得快"


def test_without_the_vocabulary_they_speak_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(tmp_path))
    words = tokenizer.load(source("random:Qwen/Qwen3.8-27B@layers=1"))
    assert words.encode("hi") == [104, 105]


def test_that_the_text_means_nothing_is_said() -> None:
    assert [str(note) for note in source("random:smollm2-135m").notes()] == [
        "The weights are random: times and bytes are real, the text means nothing."
    ]
