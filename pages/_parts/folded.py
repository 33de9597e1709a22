"""A part of a page that is folded away, and not made until somebody opens it: every rerun would pay for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st


@contextmanager
def folded(label: str, key: str, *, icon: str | None = None, expanded: bool = False) -> Iterator[bool]:
    """An expander; what goes into it is to be made only where this gives True. Opening it reruns the page once."""
    with st.expander(label, key=key, icon=icon, expanded=expanded, on_change="rerun") as part:
        yield bool(part.open)
