"""A visitor's own work that goes on elsewhere, in another tab, and keeps a button here from being pressed."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

LOOK_S = 2.0


def wait(said: str, goes_on: Callable[[], bool]) -> None:
    """Say it for as long as it goes on; then one full rerun, which frees the button."""

    def view() -> None:
        if not goes_on():
            st.rerun()
        st.caption(said)

    st.fragment(view, run_every=LOOK_S)()
