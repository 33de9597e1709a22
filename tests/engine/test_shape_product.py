"""A product by itself in every format, by the kernel a model would use: against numpy, and the memory it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import catalogue, kernels, matrices
from engine.matrices import FORMATS
from engine.shape_product import Product

CPU = torch.device("cpu")


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("name", ["mlp.up_proj", "mlp.down_proj", "self_attn.k_proj"])
def test_the_product_is_numpys(weights: str, name: str) -> None:
    """576 and 1536 numbers a row: one fills its last int4 group with zeros, the other needs none."""
    matrix = matrices.named(catalogue.load("smollm2-135m"), name)
    product = Product(matrix, weights, 70, CPU)
    packed = product._linear.packed
    whole = (product._linear.weight if packed is None else packed.dequantise()).float().numpy().astype(np.float64)
    for rows in (1, 2, 3, 5, 16, 17, 64, 65):
        x = product.rows[:rows].float().numpy().astype(np.float64)
        right = x @ whole.T
        got = product(rows).float().numpy()
        tolerance = {"bf16": 2e-2, "int8": 1e-4}.get(weights, 1e-5)  # int8: activations of 16 bits
        assert got.shape == (rows, matrix.n)
        assert np.abs(got - right).max() <= tolerance * np.abs(right).max()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_packed_weights_take_the_bytes_that_are_counted(weights: str) -> None:
    matrix = matrices.named(catalogue.load("smollm2-135m"), "mlp.down_proj")
    packed = Product(matrix, weights, 1, CPU)._linear.packed
    assert packed is not None
    assert sum(tensor.nbytes for tensor in packed.tensors) == matrix.bytes_in(weights)


@pytest.mark.skipif(not kernels.usable(), reason="the compiled kernels need numba and a POSIX system")
@pytest.mark.parametrize("weights", FORMATS)
def test_few_rows_go_the_way_that_was_found_faster(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a model's own products do, and what is faster is known before the first is timed."""
    matrix = matrices.named(catalogue.load("smollm2-135m"), "mlp.up_proj")
    product = Product(matrix, weights, 128, CPU)
    few = product._linear.few
    assert few is not None
    choice = few.choice(product.rows.dtype)
    assert choice is not None
    assert choice.decided
    choice.decide([1, 4])
    calls: list[int] = []
    monkeypatch.setattr(type(few), "__call__", lambda self, x: calls.append(len(x)) or x)
    for rows in (1, 2, 3, 64, 65, 128):
        product(rows)
    assert calls == [1, 3]
