"""Loading takes little more memory than what stays, until the first token, in a fresh process that has run a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

SIZES = {
    "vocab_size": 2048,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
FOLDERS = {
    # 96 experts, each with three matrices of its own in the file and a place in one tensor here
    "experts one by one": ("qwen3_moe", {"moe_intermediate_size": 384, "num_experts": 32, "num_hidden_layers": 3}),
    # a large embedding among small matrices, half as wide in the file as in memory
    "dense": ("llama", {"intermediate_size": 4096, "num_hidden_layers": 3, "vocab_size": 32_000}),
}
ONE_RUN = """
import re, sys
from pathlib import Path
import torch
import engine.run_job  # all that the worker imports before its first run
from engine.clock import clock_for
from engine.generate import generate
from engine.model import load

def now(name):
    return 1024 * int(re.search(name + r":\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
def first_token(name):
    model = load(name, dtype="float32", weights=sys.argv[2] if sys.argv[2:] else None)
    # Few tokens: of more, a measurement at load decides whether torch reads them, by weights spelled out.
    next(generate(model, list(range(1, 9)), max_new_tokens=32, clock=clock_for("cpu")))
    return model

first_token("tiny-3.7m")  # threads, pages of libraries, kernels: what the first model brings, whatever its size
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew here (proc(5))
before = now("VmRSS")
model = first_token(sys.argv[1])
print(now("VmHWM") - before, model.resident_weight_bytes + model.cache.bytes.kv_allocated)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells a process its peak of memory")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", FOLDERS)
def test_the_peak_of_loading_is_at_most_a_quarter_above_what_stays(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    family, sizes = FOLDERS[kind]
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **sizes})
    transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(tmp_path)
    done = subprocess.run([sys.executable, "-c", ONE_RUN, str(tmp_path)], capture_output=True, text=True, check=True)
    peak, resident = map(int, done.stdout.split())
    assert resident > 1.4e8  # large enough that a few megabytes of libraries do not count
    assert peak / resident < 1.25


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells a process its peak of memory")
def test_weights_of_an_eighth_of_their_size_take_little_more_while_they_are_packed(tmp_path: Path) -> None:
    """What reading and packing take does not shrink with the result: mappings and blocks have to be small. 20 MB are a
    quarter of what the demo model holds in int4; its widest matrix takes 7 MB spelled out, the widest here 8.
    """
    sizes = {**SIZES, "vocab_size": 72_000, "intermediate_size": 2048, "num_hidden_layers": 3}
    config = transformers.AutoConfig.for_model("llama", **sizes)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path)
    command = [sys.executable, "-c", ONE_RUN, str(tmp_path), "int4"]
    # In a new home, where which way a product goes is not known yet and is measured on the way.
    environment = {**os.environ, "ROOFLINE_LAB_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    peak, resident = map(int, done.stdout.split())
    assert resident > 4e7
    assert peak < resident + 20e6


def test_shapes_are_told_without_torchs_compiler() -> None:
    """Its import takes seconds and 90 MB; some operations on tensors without numbers load it."""
    program = (
        "import sys; from engine import catalogue, fitting; "
        "[fitting.wanted_shapes(catalogue.load(name)) for name in sys.argv[1:]]; "
        "print('torch._dynamo' in sys.modules)"
    )
    names = ["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Next-80B-A3B-Instruct", "openai/gpt-oss-20b", "openai-community/gpt2"]
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


ONE_PACKING = """
import re, sys
from pathlib import Path
import torch
from engine import checkpoint, weights
from engine.model.decoder import Decoder

def now(name):
    return 1024 * int(re.search(name + r":\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
source = checkpoint.resolve(sys.argv[1], allow_paths=True)
tensors = weights.tensors(source)
Path("/proc/self/clear_refs").write_text("5")
before = now("VmRSS")
model = Decoder.from_tensors(source.spec, tensors, weights=sys.argv[2])
print(now("VmHWM") - before, model.resident_weight_bytes)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells a process its peak of memory")
@pytest.mark.parametrize("format_", ["int8", "int4"])
def test_packing_takes_a_few_blocks_and_not_a_whole_matrix(format_: str, tmp_path: Path) -> None:
    """The embedding and the head are 131 MB each in fp32."""
    sizes = {**SIZES, "vocab_size": 64_000, "intermediate_size": 1024, "num_hidden_layers": 1}
    config = transformers.AutoConfig.for_model("llama", **sizes)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    command = [sys.executable, "-c", ONE_PACKING, str(tmp_path), format_]
    environment = {**os.environ, "ROOFLINE_LAB_KERNELS": "torch"}  # compiling kernels has a peak of its own
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    peak, resident = map(int, done.stdout.split())
    assert peak < resident + 60e6
