"""Controls that Streamlit itself keeps in the address: what an address says of them is taken once, by value, and what
cannot be taken is named. Streamlit alone would put the default in its place in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from pages._parts import misread
from pages._parts.query import write
from pages._parts.words import Words

Options = Callable[[], Sequence[Any]]


def take(t: Words, page: str, options: Mapping[str, Options]) -> None:
    """Put the values of this visit's address into the controls. Call before any of them is drawn.

    Args:
        options: by parameter, in the order they depend on each other, what each can be given those before it.
    """
    if st.session_state.get(f"{page}_taken"):
        return
    st.session_state[f"{page}_taken"] = True
    unknown = []
    for name, known in options.items():
        raw = st.query_params.get(name)
        if raw is None:
            continue
        value = next((each for each in known() if write(each) == raw), None)
        if value is None:
            unknown.append(name)
        else:
            st.session_state[name] = value
    misread.say(t, unknown)
