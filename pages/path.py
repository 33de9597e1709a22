"""The path: the lesson in eleven steps across the lab's pages, where this browser was, and what it all came to."""

from __future__ import annotations

import streamlit as st

from pages._lesson import rail
from pages._lesson.steps import DONE, STEPS
from pages._parts import session

t = session.words()
if rail.at_the_end():
    st.title(t(DONE.title))
    st.markdown(t(DONE.idea))
    rail.end(t)
else:
    st.title(t("The path"))
    st.markdown(
        t(
            "Why does a language model read fast and write slowly, and what would make it faster? {steps} steps of "
            "about {minutes} minutes in all lead from the first guess to the answer. Each has one idea, one thing "
            "to do and one thing to see, on the lab's own pages; each begins with a guess of yours.",
            steps=len(STEPS),
            minutes=sum(step.minutes for step in STEPS),
        )
    )
    rail.overview(t)
st.caption(
    t(
        "Every step has an address of its own: open one and share it from the address bar. *Project* enlarges "
        "a step for a class."
    )
)
