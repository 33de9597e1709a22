"""What each colour means, the same on every page. Chosen to stay apart in light, in dark and for colour-blind eyes."""

from __future__ import annotations

PREFILL = "#2e9e5b"
DECODE = "#2f7de1"
WEIGHTS = "#8a919c"
EXPERTS = "#5b6270"
KV = "#f08c2e"
WINDOW = "#f7c58d"
LATENT = "#b5541c"
STATE = "#8e44c9"
CONV = "#c9a3e8"
LOGITS = "#3aa6a0"
FLOOR = "#e0393e"
FREE = ("#d6459a", "#9a8f00")
"""Hues that mean nothing, for what has no colour of its own: models beside each other, matrices of one model."""
MORE_FREE = ("#a0653a", "#6b7fd7", "#5f9f9f")
"""More of them, where there are many curves and nothing else has a colour."""
