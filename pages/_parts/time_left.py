"""How long a piece of work will still take, if it goes on as it has while this page watched it."""

from __future__ import annotations

import time

import streamlit as st

from pages._parts.words import Words

WATCHED_S = 2.0
WATCHED_SHARE = 0.03


def time_left(t: Words, work: str, fraction: float | None) -> str:
    """In words, or empty while there is too little to go by.

    Args:
        work: what tells this piece of work from others.
        fraction: the share of it that is done.
    """
    if fraction is None:
        return ""
    at = time.monotonic()
    watched, began, first = st.session_state.get("watched_work", (None, 0.0, 0.0))
    if watched != work or fraction < first:
        watched, began, first = st.session_state["watched_work"] = (work, at, fraction)
    if at < began + WATCHED_S or fraction < first + WATCHED_SHARE:
        return ""
    left_s = (at - began) * (1 - fraction) / (fraction - first)
    return t("about {seconds} s left", seconds=t.number(max(1.0, left_s), 0))
