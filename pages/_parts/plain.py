"""Text from visitors, models and imported records, made safe for Streamlit's Markdown."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&])")


def plain(text: str) -> str:
    """The same text with every character escaped that Markdown, LaTeX, icons or colours could see a meaning in."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
