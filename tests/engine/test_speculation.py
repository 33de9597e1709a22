"""Prompt lookup: drafts by hand, tokens against greedy decoding and against transformers, counts foretold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine import kernels, lookup, speculation
from engine.clock import CpuClock
from engine.errors import LabError
from engine.generate import generate
from engine.lookup import Check
from engine.model.decoder import Decoder
from engine.tokenizer import load as load_tokenizer

PROMPTS = (
    "The cat sat on the mat. The cat sat on the",
    "one two three four one two three four one two",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "小明把苹果给了小王，小王把苹果给了",
    "Once upon a time, in a village by the sea, there lived an old clockmaker who",
    "A B C A B C A B C A",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
    "for i in range(10):\n    print(i)\nfor j in range(10):\n",
    "Water boils at 100 degrees.",
    "x",
    "Repeat after me: hello hello hello hello",
    "SELECT name FROM users WHERE id = 1; SELECT name FROM users WHERE id =",
    "Monday, Tuesday, Wednesday, Thursday,",
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "Dear Sir or Madam, I am writing to you because",
    "<html><body><p>one</p><p>two</p><p>",
    "In the beginning was the word, and the word was",
    "The quick brown fox jumps over the lazy dog. The quick brown",
    "Why is the sky blue? The sky is blue because",
    "She said yes. He said no. She said yes. He said",
)


@pytest.fixture(scope="module")
def demo(demo_folder: Path) -> Decoder:
    return speculation.require(engine.load(str(demo_folder), max_tokens=256))


def test_a_draft_is_what_followed_the_longest_match() -> None:
    assert lookup.draft([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]
    assert lookup.draft([9, 2, 7, 1, 2, 3, 5, 1, 2], 2) == [3, 5], "two tokens match better than one"
    assert lookup.draft([5, 1, 5, 2, 5], 1) == [2], "of equal matches the latest"
    assert lookup.draft([1, 2, 3], 4) == []
    assert lookup.draft([7], 4) == []
    assert lookup.draft([7, 7], 4) == [7]


def test_what_agrees_is_kept_up_to_the_first_that_does_not() -> None:
    assert lookup.agreed([1, 2, 3], [1, 2, 9, 4]) == 2
    assert lookup.agreed([], [1]) == 0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=24),
       st.integers(0, 6))  # fmt: skip
def test_the_checks_foretold_write_the_whole_answer(prompt: list[int], answer: list[int], most: int) -> None:
    checks = lookup.foretell(prompt, answer, most)
    assert 1 + sum(check.gained for check in checks) == len(answer)
    assert all(0 <= check.kept <= check.drafted <= most for check in checks)
    if most == 0:
        assert len(checks) == len(answer) - 1


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_tokens_are_greedys_and_the_checks_are_those_foretold(
    prompt: str, demo: Decoder, demo_folder: Path
) -> None:
    ids = load_tokenizer(demo_folder).encode(prompt)
    greedy = [step.token_ids[0] for step in generate(demo, ids, max_new_tokens=24, clock=CpuClock())]
    passes = list(speculation.speculate(demo, ids, max_new_tokens=24, drafts=5, clock=CpuClock()))
    written = [token for each in passes for token in each.token_ids]
    assert written == greedy
    assert [each.check for each in passes[1:]] == lookup.foretell(ids, greedy, 5)


@pytest.fixture(scope="module")
def packed(demo_folder: Path) -> Decoder:
    return speculation.require(engine.load(str(demo_folder), max_tokens=256, weights="int8"))


@pytest.mark.skipif(not kernels.usable(), reason="packed weights need the compiled kernels (numba)")
@pytest.mark.parametrize("drafts", [5, 12])
@pytest.mark.parametrize("prompt", PROMPTS[:4])
def test_packed_weights_write_greedys_tokens_too(prompt: str, drafts: int, packed: Decoder, demo_folder: Path) -> None:
    """Up to eight rows int8 is multiplied in whole numbers, more rows otherwise: close scores are asked for alone."""
    ids = load_tokenizer(demo_folder).encode(prompt)
    greedy = [step.token_ids[0] for step in generate(packed, ids, max_new_tokens=24, clock=CpuClock())]
    passes = speculation.speculate(packed, ids, max_new_tokens=24, drafts=drafts, clock=CpuClock())
    assert [token for each in passes for token in each.token_ids] == greedy


def test_a_repeating_text_takes_fewer_passes_and_transformers_writes_the_same(demo: Decoder, demo_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    ids = load_tokenizer(demo_folder).encode(PROMPTS[0])
    passes = list(speculation.speculate(demo, ids, max_new_tokens=32, drafts=6, clock=CpuClock()))
    written = [token for each in passes for token in each.token_ids]
    reference = AutoModelForCausalLM.from_pretrained(demo_folder, dtype=torch.float32)
    said = reference.generate(torch.tensor([ids]), max_new_tokens=32, do_sample=False, prompt_lookup_num_tokens=6)
    assert written == said[0, len(ids) :].tolist()
    assert len(passes) < len(written)
    checks = [each.check for each in passes[1:] if each.check]
    assert 0 < (lookup.acceptance(checks) or 0) <= 1


def test_close_scores_are_asked_for_again_one_row_at_a_time(demo: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [1, 2, 3, 1, 2, 3, 1, 2]
    plain = [step.token_ids[0] for step in generate(demo, ids, max_new_tokens=12, clock=CpuClock())]
    monkeypatch.setitem(speculation.MARGIN, torch.float32, 1e9)
    passes = list(speculation.speculate(demo, ids, max_new_tokens=12, drafts=4, clock=CpuClock()))
    assert [token for each in passes for token in each.token_ids] == plain
    assert sum(each.again for each in passes) > 0


def test_it_ends_at_a_stop_token_a_cancel_and_the_contexts_limit(demo: Decoder) -> None:
    ids = [1, 2, 3, 1, 2, 3, 1, 2]
    full = [
        t for p in speculation.speculate(demo, ids, max_new_tokens=16, drafts=4, clock=CpuClock()) for t in p.token_ids
    ]
    stop = full[5]
    cut = [
        token
        for each in speculation.speculate(demo, ids, max_new_tokens=16, drafts=4, clock=CpuClock(), stop_ids=[stop])
        for token in each.token_ids
    ]
    assert cut == full[: full.index(stop) + 1]
    once = list(
        speculation.speculate(demo, ids, max_new_tokens=16, drafts=4, clock=CpuClock(), should_stop=lambda: True)
    )
    assert len(once) == 1
    long = list(speculation.speculate(demo, ids, max_new_tokens=10_000, drafts=4, clock=CpuClock()))
    assert sum(len(each.token_ids) for each in long) == demo.max_tokens - len(ids) + 1


def test_a_model_with_a_state_is_refused_in_one_sentence() -> None:
    with pytest.raises(LabError, match="plain KV cache"):
        speculation.require(engine.load("random:Qwen/Qwen3.5-0.8B@layers=4"))


def test_one_check_by_hand() -> None:
    check = Check(drafted=4, kept=2, context=20)
    assert (check.rows, check.gained) == (5, 3)
    assert lookup.acceptance([check, Check(0, 0, 3)]) == 0.5
    assert lookup.acceptance([Check(0, 0, 3)]) is None
