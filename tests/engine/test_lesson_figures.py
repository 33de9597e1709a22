"""Every figure that docs/lesson.md prints, computed; and those of the lesson itself against its own printed list."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from engine import lesson, tokenizer

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/lesson.md").read_text(encoding="utf-8")
PRINTED = dict(re.findall(r"^\| `(\w+)` \| ([\d.,]+)", DOCUMENT, re.MULTILINE))
GOLDEN = {
    row["id"]: row["value"]
    for row in csv.DictReader((Path(__file__).parent / "data/golden.csv").open(encoding="utf-8"))
}
# The lesson's printed list says these in other units or under other names.
SAME = {
    "matmul_params": ("matmul_params", 1),
    "trunk_params": ("trunk_params", 1),
    "checkpoint_params": ("checkpoint_params", 1),
    "weight_bytes": ("weight_gb", 1e9),
    "flops_only_rate": ("flops_only_rate", 1),
    "flops_only_time": ("flops_only_ms", 1),
    "weights_only_rate": ("weights_only_rate", 1),
    "compute_used": ("compute_used_percent", 1),
    "ridge_h100": ("ridge", 1),
    "prefill_4": ("prefill_4_ms", 1),
    "decode_after_4": ("decode_after_4_ms", 1),
    "prefill_2048": ("prefill_2048_ms", 1),
    "prefill_2048_per_token": ("prefill_2048_token_ms", 1),
    "decode_over_prefill_token": ("written_over_read", 1),
    "kv_per_token": ("kv_token_bytes", 1),
    "gdn_state": ("state_mb", 1e6),
    "gdn_traffic": ("state_traffic_mb", 1e6),
    "kv_state_crossover": ("kv_equals_state", 1),
    "storage_crossover": ("state_equals_replaced", 1),
    "request_bytes_4096": ("own_mb_4096", 1e6),
    "max_batch_4096": ("largest_batch_4096", 1),
    "limit_intensity_4096": ("limit_intensity_4096", 1),
    "throughput_58": ("rate_58", 1),
    "a100_step": ("a100_ms", 1),
    "h100_step": ("h100_ms", 1),
    "a100_to_h100": ("speed_a100_h100", 1),
    "a100_to_h100_flops": ("compute_a100_h100", 1),
    "qwen3_32b_kv_ratio": ("other_kv_ratio", 1),
    "attention_intensity": ("attention_intensity", 1),
}


def test_the_document_prints_every_figure_and_no_other() -> None:
    assert set(PRINTED) == set(lesson.FIGURES)


@pytest.mark.parametrize("name", PRINTED)
def test_a_printed_figure_is_the_computed_one(name: str) -> None:
    printed = PRINTED[name].rstrip(".,").replace(",", "")
    digits = len(printed.partition(".")[2])
    assert f"{lesson.figure(name):.{digits}f}" == printed


@pytest.mark.parametrize("row", SAME)
def test_a_figure_is_the_lesson_s_own(row: str) -> None:
    name, unit = SAME[row]
    digits = len(GOLDEN[row].partition(".")[2])
    assert f"{lesson.figure(name) * unit:.{digits}f}" == GOLDEN[row]


def test_every_row_of_the_lesson_s_list_is_a_figure_here() -> None:
    # the ratio is printed as a gain in percent; the prompt's tokens are the tokenizer's
    assert set(GOLDEN) - set(SAME) == {"h200_over_h100", "prompt_tokens"}
    assert 1 + lesson.figure("h200_gain_percent") / 100 == pytest.approx(float(GOLDEN["h200_over_h100"]), abs=1e-4)


def test_the_sentence_has_the_tokens_the_lesson_counts(in_demo_home: Path) -> None:
    assert len(tokenizer.qwen().encode(lesson.SENTENCE)) == lesson.PROMPT == int(GOLDEN["prompt_tokens"])


@pytest.mark.parametrize(
    ("prompt", "output", "text", "engine"), [(10, 5, 6, 5), (1, 1, 2, 1), (4, 1, 2, 1), (7, 0, 1, 1), (0, 0, 0, 0)]
)
def test_passes(prompt: int, output: int, text: int, engine: int) -> None:
    assert lesson.passes(prompt, output, first_token_from_prefill=False) == text
    assert lesson.passes(prompt, output, first_token_from_prefill=True) == engine


def test_token_passes_by_hand() -> None:
    assert lesson.token_passes(4, 3, cache=True) == 4 + 1 + 1
    assert lesson.token_passes(4, 3, cache=False) == 4 + 5 + 6
