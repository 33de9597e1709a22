"""What a rerun of the prediction pages costs the one process that serves everybody, drags of a slider included."""

from __future__ import annotations

import itertools

import pytest
from rerun_cost import RERUN_CPU_S, rerun_cpu_s
from web_server import Lab


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("roofline", "same roof"),
        ("devices", "Estimate the speed twice"),
        ("batch", "share each reading"),
        ("memory", "remembers"),
    ],
)
def test_a_rerun_of_a_prediction_page_costs_little_cpu(page: str, said: str, lab: Lab) -> None:
    batches = itertools.cycle(range(2, 60))

    def query() -> str:
        # A new batch each time, as under a hand that drags: nothing may be answered from a cache of whole pages.
        return f"lang=en&batch={next(batches)}&context={4096 + next(batches)}"

    assert rerun_cpu_s(lab, page, query=query, said=said) < RERUN_CPU_S
