"""What a run needs in memory, beside what this machine has: said before Run is pressed."""

from __future__ import annotations

import psutil
import streamlit as st

from engine.ceilings import DeviceFacts
from engine.ledger import Formats, resident
from engine.request import DTYPES
from pages._parts.choices import choices
from pages._parts.links import View
from pages._parts.words import Words

WORTH_SAYING_BYTES = 2e9


def needs_bytes(view: View, prompt: str) -> int:
    """Weights and caches of a run; a token of the prompt is taken to be one character."""
    choice = choices()[view.model]
    positions = min(len(prompt) + view.length, choice.spec.max_position)
    formats = Formats.engine(DTYPES[view.dtype], view.request(prompt).weights)
    return int(resident(choice.spec, batch=view.batch, max_tokens=positions, formats=formats).total)


def fits(t: Words, view: View, prompt: str, device: DeviceFacts | None) -> bool:
    """Say what a large run needs; False where this machine does not have it at all."""
    needed = needs_bytes(view, prompt)
    if needed < WORTH_SAYING_BYTES or device is None or not device.memory_bytes:
        return True
    told = {"needed": t.number(needed / 1e9, 1), "memory": t.number(device.memory_bytes / 1e9, 1)}
    if needed > device.memory_bytes:
        st.warning(
            t("This run needs {needed} GB of memory and this machine has {memory} GB: choose fewer sequences, "
              "a shorter length, bf16, or a smaller model.", **told),
            icon=":material/memory:",
        )  # fmt: skip
        return False
    if device.kind == "cpu":
        free = t.number(psutil.virtual_memory().available / 1e9, 1)
        st.caption(t("Needs {needed} GB of memory; {free} GB are free now.", needed=told["needed"], free=free))
    else:
        st.caption(t("Needs {needed} GB of the device's {memory} GB of memory.", **told))
    return True
