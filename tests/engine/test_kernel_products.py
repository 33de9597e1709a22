"""Products of few rows by the compiled kernel, and the delta rule's step: against plain torch, in every format."""

from __future__ import annotations

import pytest
import torch
from family_helpers import CONFIGS, engine_of, reference, tokens
from torch import Tensor

from engine import kernels
from engine.arena import Arena
from engine.model import delta_rule, linear
from engine.model.few_rows import TRIED_ROWS, UNMEASURED_ROWS, Choice, side_by_side
from engine.model.linear import Linear, linears_in
from engine.model.packed import GROUPS, pack

pytestmark = pytest.mark.skipif(not kernels.usable(), reason="the compiled kernels need numba and a POSIX system")

SIZES = [(33, 96), (7, 50), (1, 5), (600, 1313)]
"""Outputs and inputs: odd numbers of either, fewer than a tile takes, more than are rounded to bf16 at once."""


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(4)


def made(n: int, k: int, weights: str, bias: bool) -> tuple[Linear, torch.dtype]:
    """A random linear in a format, and the dtype of its activations; "bf16-bf16" has them in bf16 too."""
    dtype = torch.bfloat16 if weights == "bf16-bf16" else torch.float32
    weight, own = torch.randn(n, k), torch.randn(n).to(dtype) if bias else None
    if weights in GROUPS:
        return Linear.of(pack(weight, weights, Arena()), own), dtype
    return Linear.of(weight if weights == "fp32" else weight.bfloat16(), own), dtype


def exact(part: Linear, x: Tensor) -> Tensor:
    """In float64."""
    weight = part.weight if part.packed is None else part.packed.dequantise()
    bias = 0 if part.bias is None else part.bias.double()
    return x.double() @ weight.double().T + bias


@pytest.mark.parametrize("weights", ["fp32", "bf16", "bf16-bf16", *GROUPS])
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_one_to_nine_rows_of_odd_sizes(n: int, k: int, weights: str) -> None:
    for bias in (False, True):
        part, dtype = made(n, k, weights, bias)
        assert part.few is not None
        for rows in (*range(1, 10), 64):
            x = torch.randn(rows, k).to(dtype)
            found, wanted = part.few(x), exact(part, x)
            assert found.dtype == dtype
            # Rounded once to 8 bits, or 24; int8 multiplies by activations of 16 bits.
            off = (found.double() - wanted).abs() - (wanted.abs() * 2**-8 if dtype == torch.bfloat16 else 0)
            assert float(off.max()) <= {"int8": 3e-4}.get(weights, 1e-5) * float(wanted.abs().max() + 1)


def test_rows_that_lie_apart_and_batches_of_them() -> None:
    part, _ = made(33, 96, "fp32", bias=True)
    assert part.few is not None
    wide = torch.randn(6, 200)
    assert torch.allclose(part.few(wide[:, 8:104]), part.by_torch(wide[:, 8:104]), atol=1e-4)
    assert torch.allclose(part.few(wide.T[:96].T), part.by_torch(wide[:, :96]), atol=1e-4)
    columns = torch.randn(96, 4).T
    assert torch.allclose(part.few(columns), part.by_torch(columns), atol=1e-4)
    many = torch.randn(2, 3, 96)
    assert part(many).shape == (2, 3, 33)
    assert torch.allclose(part(many), part.by_torch(many), atol=1e-4)


@pytest.mark.parametrize("weights", ["fp32", "bf16-bf16", "int8", "int4"])
def test_several_matrices_each_with_rows_of_its_own(weights: str) -> None:
    parts, dtype = zip(*(made(33, 50, weights, bias=True) for _ in range(3)), strict=True)
    counts, x = [2, 5, 1], torch.randn(8, 50).to(dtype[0])
    found = side_by_side([part.few for part in parts], counts, x)
    wanted = torch.cat([exact(part, rows) for part, rows in zip(parts, x.split(counts), strict=True)])
    assert torch.allclose(found.double(), wanted, atol=1e-3, rtol=2**-8)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for weights in ("fp32", "bf16-bf16"):
            part, dtype = made(1030, 64, weights, bias=False)
            assert part.few is not None
            x = torch.randn(3, 64).to(dtype)
            assert torch.allclose(part.few(x).double(), exact(part, x), atol=1e-4, rtol=2**-8)
    finally:
        torch.set_num_threads(before)


def test_sums_are_rounded_to_bf16_as_torch_rounds() -> None:
    """Products with 1 are the weights themselves: halves of a step go to the even neighbour, infinities stay."""
    numbers = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3e38, 1e-40, 0.1, float("inf"), 0.0])
    both = torch.stack((numbers.bfloat16(), (numbers - numbers.bfloat16().float()).bfloat16()), dim=1)
    both[6, 1] = 0
    part = Linear.of(both.contiguous())
    assert part.few is not None
    found = part.few(torch.ones(1, 2, dtype=torch.bfloat16))[0]
    assert torch.equal(found, both.float().sum(1).bfloat16())


def test_no_kernel_where_it_could_not_compute() -> None:
    assert Linear.of(torch.randn(4, 4, dtype=torch.float64)).few is None
    assert Linear.of(torch.randn(8, 8)[:, :4]).few is None, "rows that do not lie right behind each other"
    part = Linear.of(torch.randn(4, 4))
    assert part.few is not None
    assert not part.few.takes(torch.randn(1, 4).bfloat16())
    assert not part.few.takes(torch.randn(0, 4))
    assert part(torch.randn(0, 4)).shape == (0, 4)


def test_on_request_no_kernel_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_KERNELS", "torch")
    assert Linear.of(torch.randn(4, 4)).few is None


def test_a_choice_holds_for_the_rows_up_to_those_that_were_tried() -> None:
    choice = Choice("any", UNMEASURED_ROWS)
    assert choice.most_rows == 8
    choice.decide([2, 8])
    assert [rows for rows in range(70) if choice.takes(rows)] == [2, 5, 6, 7, 8]
    assert choice.most_rows == 8
    choice.decide(TRIED_ROWS)
    assert not choice.takes(65)
    choice.decide([])
    assert choice.most_rows == 0


@pytest.mark.parametrize("kind", CONFIGS)
def test_no_product_of_a_decode_step_is_torchs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any family, where the kernel was found to be faster. And the numbers are those of the products torch makes."""
    # Whatever was measured for these small shapes by a test before.
    monkeypatch.setattr(Choice, "takes", lambda choice, rows: rows <= UNMEASURED_ROWS)
    theirs = reference(kind)
    ours = engine_of(theirs)
    with monkeypatch.context() as patch:
        patch.setenv("ROOFLINE_LAB_KERNELS", "torch")
        plain = engine_of(theirs)
        ids = tokens(2, 7)
        wanted = [plain.prefill(ids[:, :3])] + [plain.decode(column) for column in ids[:, 3:].T]
    assert not any(part.few for part in plain.linears)
    assert all(part.few for part in linears_in(ours._layers))
    found = [ours.prefill(ids[:, :3])]
    monkeypatch.setattr(linear.F, "linear", lambda *_: pytest.fail("a product by torch"))
    found += [ours.decode(column) for column in ids[:, 3:].T]
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).abs().max() / other.abs().max()) < 1e-4


@pytest.mark.parametrize("channels", [1, 20])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_step_of_the_delta_rule_is_torchs(batch: int, channels: int) -> None:
    torch.manual_seed(3)
    heads, keys, values = 5, 20, 37
    state = torch.randn(batch, heads, keys, values)
    kept = state.clone()
    for _ in range(3):
        q, k = (delta_rule.normalise(torch.randn(batch, heads, keys)) for _ in range(2))
        v, decay = torch.randn(batch, heads, values), -torch.rand(batch, heads, channels)
        strength = torch.rand(batch, heads, 1)
        found = delta_rule.compiled_step(q, k, v, decay, strength, state)
        wanted = delta_rule.step(q, k, v, decay, strength, kept)
        assert torch.allclose(found, wanted, atol=1e-5)
        assert torch.allclose(state, kept, atol=1e-5)
