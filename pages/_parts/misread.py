"""Says which values of an address could not be taken as they stand: a wrong device shown in silence misleads."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages._parts.plain import plain
from pages._parts.words import Words


def say(t: Words, names: Sequence[str]) -> None:
    """One sentence, or nothing where all could be read."""
    if names:
        st.warning(
            t("What this address says of {names} cannot be; the nearest or usual value is shown.",
              names=plain(", ".join(names))),
            icon=":material/link_off:",
        )  # fmt: skip
