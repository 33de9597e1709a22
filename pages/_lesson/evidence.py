"""What a claim has to stand up to: three questions; the lesson in a sentence, and what stays open."""

from __future__ import annotations

import streamlit as st

from engine import lesson
from pages._parts.plain import plain
from pages._parts.words import Words


def questions(t: Words) -> None:
    """Three questions to any claim, answered for this lesson's own."""
    st.subheader(t("Three questions to any claim"))
    figures = {
        "weights": t.number(lesson.figure("weight_gb"), 2),
        "matrix": f"{t.number(lesson.figure('ffn_inputs'))} × {t.number(lesson.figure('ffn_outputs'))}",
        "rows": t.number(lesson.PROMPT),
    }
    asked = (
        (
            t("What does it solve?"),
            t(
                "It says why writing is slow: with one bringing-in of {weights} GB prefill computes all rows "
                "of the prompt, decode a single one. So the speed of decode follows the bandwidth and not the "
                "compute.",
                **figures,
            ),
        ),
        (
            t("Why is it so, by mathematics?"),
            t(
                "The roofline is bookkeeping: no step is faster than its operations or its bytes (Williams, "
                "Waterman and Patterson, 2009). A {matrix} matrix with {rows} rows does {rows} times the "
                "operations of one row on the same bytes. That is a count, and no one has to believe it.",
                **figures,
            ),
        ),
        (
            t("What do experiments say?"),
            t(
                "Leviathan and others (2023) write that inference from large models is often bound by memory "
                "bandwidth and communication and not by arithmetic; DeepSeek-V3's report says the same of its "
                "decoding. Here you can measure it: on *Live run* each step lies at or above its roof. And the "
                "very small model above waits for its starts instead, as long as each operation is started by itself."
            ),
        ),
    )
    for question, answer in asked:
        st.markdown(f"**{question}** {answer}")


def last_words(t: Words) -> None:
    """The lesson in a sentence, and what it leaves open."""
    st.subheader(t("In one sentence"))
    st.info(
        t(
            "Writing is not slow because there is much to compute, but because each token brings in the whole "
            "model; in reading one bringing-in serves hundreds of tokens."
        ),
        icon=":material/push_pin:",
    )
    st.markdown(
        t(
            "What remains open: where the caches of hundreds of requests go in one memory, when they come and "
            "go at any time and have any length; and how one token is picked from the scores. Remember until "
            "then: decode looks at the bandwidth, prefill at the compute, and on an H100 in bf16 the two meet at "
            "about {ridge} operations a byte.",
            ridge=plain(t.number(lesson.figure("ridge"), 0)),
        )
    )
