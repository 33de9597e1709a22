"""Perplexity and agreement, against torch's own cross entropy; what ships with the lab for the demo model."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it

from engine import quality
from engine.model import Model, load
from engine.quality import measure

IDS = [int(token) for token in torch.randint(0, 512, (30,), generator=torch.Generator().manual_seed(7))]


@pytest.fixture(scope="module")
def tiny() -> Model:
    return load("tiny-3.7m", max_tokens=128)


def test_perplexity_is_that_of_cross_entropy_over_whole_prefills(tiny: Model) -> None:
    reading = measure.read(tiny, IDS)
    prefixes = [tiny.prefill(torch.tensor([IDS[:length]]))[0] for length in range(1, len(IDS))]
    expected = F.cross_entropy(torch.stack(prefixes), torch.tensor(IDS[1:])).exp()
    assert reading.perplexity == pytest.approx(float(expected), rel=1e-4)
    assert reading.choices == [int(logits.argmax()) for logits in prefixes]


def test_what_is_written_is_greedy(tiny: Model) -> None:
    written = measure.write(tiny, IDS)
    assert len(written) == measure.GREEDY_TOKENS
    behind = [*IDS[: measure.OPENING_TOKENS], *written[:10]]
    assert written[10] == int(tiny.prefill(torch.tensor([behind])).argmax())


def test_agreement_counts_positions_and_the_common_start() -> None:
    one, other = measure.Reading([-1.0] * 4, [1, 2, 3, 4]), measure.Reading([-1.0] * 4, [1, 2, 9, 4])
    assert measure.agreement(one, other) == 0.75
    assert measure.same_from_the_start([5, 6, 7], [5, 6, 8]) == 2
    assert measure.same_from_the_start([5, 6], [5, 6]) == 2


def test_the_texts_are_of_two_languages_and_long_enough() -> None:
    assert len(quality.TEXTS["en"].split()) > 200
    assert sum("\u4e00" <= character <= "\u9fff" for character in quality.TEXTS["zh"]) > 200
    assert quality.text().startswith(quality.TEXTS["en"])


def test_what_ships_is_in_order_fewer_bits_worse() -> None:
    found = {entry.weights: entry for entry in quality.measured()}
    assert {"bf16", "int8", "int4"} <= set(found)
    for language in quality.TEXTS:
        bf16, int8, int4 = (found[name] for name in ("bf16", "int8", "int4"))
        assert bf16.perplexity[language] == pytest.approx(bf16.perplexity_fp32[language], rel=0.01)
        assert bf16.agreement[language] > 0.97
        assert bf16.agreement[language] >= int8.agreement[language] > int4.agreement[language]
        assert len({entry.perplexity_fp32[language] for entry in found.values()}) == 1


def test_a_rounded_cache_costs_less_than_rounded_weights() -> None:
    weights, bf16, int8 = (
        quality.of("smollm2-135m", *formats) for formats in (("int8",), ("fp32", "bf16"), ("fp32", "int8"))
    )
    assert weights is not None
    assert bf16 is not None
    assert int8 is not None
    for language in quality.TEXTS:
        assert bf16.agreement[language] > int8.agreement[language] > weights.agreement[language]
        assert int8.perplexity[language] == pytest.approx(int8.perplexity_fp32[language], rel=0.01)


def test_pages_can_read_it_without_torch() -> None:
    program = "import sys; from engine import quality; quality.measured(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
