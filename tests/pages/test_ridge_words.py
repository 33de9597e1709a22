"""A ridge on any page says whose it is and in which format, with the number computed."""

from __future__ import annotations

import pytest
from made_up_run import made_up_ceilings

from pages._parts import ridge_words
from pages._parts.words import Words

EN, ZH = Words("en"), Words("zh")


def test_this_machine_s_ridges_by_hand() -> None:
    # 100 GFLOP/s over 18 GB/s are 5.56 FLOP a byte: in rows that number for two-byte weights, twice it for four.
    assert ridge_words.machine(EN, made_up_ceilings()) == (
        "This machine's ridge, with weights read from memory: 11.1 rows in fp32, 5.56 rows in bf16."
    )
    assert "fp32 为 11.1 行" in ridge_words.machine(ZH, made_up_ceilings())


def test_a_machine_that_was_not_measured_has_no_number() -> None:
    said = ridge_words.machine(EN, None)
    assert "once it has been measured" in said
    assert not any(character.isdigit() for character in said)


def test_the_lesson_s_card_and_one_without_that_format() -> None:
    assert "295 rows in bf16" in ridge_words.card(EN)
    assert ridge_words.card(EN, dtype="int4") == ""


@pytest.mark.parametrize("t", [EN, ZH], ids=lambda t: t.language)
def test_a_mark_names_owner_and_format(t: Words) -> None:
    assert "bf16" in ridge_words.mark(t, 5.5555, "bf16")
    assert ridge_words.mark(EN, 5.5555, "bf16") == "ridge of this machine, bf16: 5.56 FLOP/byte"
    assert ridge_words.mark(EN, 295.4, "bf16", "H100 SXM") == "ridge of H100 SXM, bf16: 295 FLOP/byte"
    assert ridge_words.mark_rows(EN, 5.5555, "fp32", 3.54e6) == "ridge reading 3.54 MB, fp32: 5.56 rows"
    assert len(ridge_words.why(t)) > 60
