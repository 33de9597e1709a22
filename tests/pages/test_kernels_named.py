"""A run's page says what its steps ran through, and nothing where the record does not know."""

from __future__ import annotations

import pytest

from engine.ceilings import DeviceFacts
from pages._parts import summary
from pages._parts.words import Words

NUMBA = {"mkl": "yes", "decode": "numba 0.68.1", "products": "numba 0.68.1"}


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        (NUMBA | {"whole_steps": "16"}, "numba 0.68.1 for whole steps of up to 16 rows, PyTorch for more"),
        (NUMBA | {"few_rows": "4-8"}, "numba 0.68.1 for products of up to 4–8 rows, PyTorch for the rest"),
        (NUMBA | {"few_rows": "0"}, "PyTorch"),
        ({"decode": "torch"}, "PyTorch"),
        (NUMBA, None),
        ({"cuda": "12.8"}, None),
    ],
)
def test_the_kernels_of_a_run_are_named(kernels: dict[str, str], said: str | None) -> None:
    facts = DeviceFacts(kind="cpu", name="any", threads=2, kernels=kernels, torch_version="2.13")
    assert summary._kernels(Words("en"), facts) == ([] if said is None else [("Kernels", said)])
    assert all(label == "内核" for label, _ in summary._kernels(Words("zh"), facts))
