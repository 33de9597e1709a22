"""What a rerun of the lesson's pages costs the one process that serves everybody, the path's card included."""

from __future__ import annotations

import pytest
from rerun_cost import RERUN_CPU_S, rerun_cpu_s
from web_server import Lab


@pytest.mark.parametrize(
    ("page", "query", "said"),
    [
        ("steps", "", "a pass of the model at a time"),
        ("map", "", "forced by a number"),
        ("glossary", "", "Every term of the lab"),
        ("devices", "step=misconceptions", "sound right"),
        ("path", "step=done", "Your guesses beside the numbers"),
    ],
)
def test_a_rerun_costs_little_cpu(page: str, query: str, said: str, lab: Lab) -> None:
    assert rerun_cpu_s(lab, page, query=lambda: f"lang=en&{query}", said=said, reruns=10) < RERUN_CPU_S
