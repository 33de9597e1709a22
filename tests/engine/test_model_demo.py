"""The demo model end to end: the tokens it writes are those transformers writes from the same published file."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import engine
from engine import device as devices
from engine.clock import CpuClock
from engine.errors import LabError
from engine.generate import generate
from engine.model import Model

NEW_TOKENS = 64
# Token ids, so that this does not depend on any tokenizer: two chats, a story, code, and Chinese in byte pieces.
PROMPTS = [
    [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2],
    [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198],
    [6403, 2238, 253, 655, 28, 281, 253, 1561, 12072],
    [1604, 3303, 24, 94, 727, 472, 284, 1241, 1014, 338, 216, 34],
    [39193, 226, 34064, 101],
]


@pytest.fixture(scope="module")
def theirs(demo_gguf: Path) -> Any:
    """The model as transformers reads it from the GGUF: not from our folder, which could share an error with us."""
    return AutoModelForCausalLM.from_pretrained(demo_gguf.parent, gguf_file=demo_gguf.name, dtype=torch.float32)


@pytest.fixture(scope="module")
def demo(demo_home: Path) -> Model:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOFLINE_LAB_HOME", str(demo_home))
        return engine.load("smollm2-135m", max_tokens=256)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens_equal_transformers(demo: Model, theirs: Any, prompt: list[int]) -> None:
    """transformers' likeliest token after the prompt and each of our tokens is our next one.

    By induction its own greedy output is then ours, token for token; asked at once, it costs one pass and not 64.
    """
    written = [s.token_ids[0] for s in generate(demo, prompt, max_new_tokens=NEW_TOKENS, clock=CpuClock())]
    with torch.no_grad():
        logits = theirs(torch.tensor([prompt + written[:-1]])).logits[0]
    assert written == logits[len(prompt) - 1 :].argmax(-1).tolist()


def test_the_folder_loads_like_the_id(demo: Model, demo_folder: Path) -> None:
    again = engine.load(str(demo_folder), max_tokens=64)
    prompt = torch.tensor([PROMPTS[2]])
    assert torch.equal(again.prefill(prompt), demo.prefill(prompt))
    assert demo.resident_weight_bytes == again.resident_weight_bytes == 4 * 134_515_008


def test_random_weights_load_by_name() -> None:
    model = engine.load("tiny-3.7m", dtype="bfloat16", max_tokens=16)
    logits = model.prefill(torch.tensor([[1, 2, 3]]))
    assert logits.shape == (1, model.spec.vocab_size)
    assert bool(torch.isfinite(logits).all())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"source": "no-such-model"}, "no-such-model"),
        ({"source": "tiny-3.7m", "dtype": "float8"}, "float8"),
        ({"source": "tiny-3.7m", "device": "abacus"}, "abacus"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_a_sentence(settings: dict[str, str], says: str) -> None:
    with pytest.raises(LabError, match=says):
        engine.load(**settings)


def test_weights_that_do_not_fit_are_refused_before_anything_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "free_bytes", lambda device: 10_000_000)
    with pytest.raises(LabError, match=r"0\.01 GB of memory and 0\.01 GB are free"):
        engine.load("tiny-3.7m")


MEASURE_LOADING = """
    import re
    from pathlib import Path
    import torch, engine
    from engine import clock, generate, weights  # everything a load imports, before the first look

    def now(name) -> int:
        return 1024 * int(re.search(name + r":\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

    # What the first model of a process brings, whatever its size: threads, pages of libraries, compiled kernels.
    engine.load("tiny-3.7m", max_tokens=64).prefill(torch.tensor([[1, 2, 3]]))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew here (proc(5))
    before = now("VmRSS")
    model = engine.load("smollm2-135m", max_tokens=64)
    model.prefill(torch.tensor([[1, 2, 3]]))
    print((now("VmHWM") - before) / model.resident_weight_bytes)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process its own peak")
def test_loading_takes_little_more_memory_than_the_model(demo_home: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(MEASURE_LOADING)]
    environment = {**os.environ, "ROOFLINE_LAB_HOME": str(demo_home)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], env=environment
    )
    assert 0.9 < float(done.stdout) < 1.25
