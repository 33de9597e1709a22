"""Recurrent FLOPs, which torch's counter cannot see, by unrolling them with counting numbers; and llama.cpp's log."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine import catalogue
from engine.ledger import ENGINE, LESSON, Formats, decode, prefill, resident
from engine.spec import GatedDeltaNet, KimiDelta, Mamba2

ANCHOR = catalogue.load("Qwen/Qwen3.8-27B")


class Counted:
    """A number that counts the multiplications and additions it takes part in."""

    operations = 0

    def __mul__(self, other: Counted) -> Counted:
        Counted.operations += 1
        return Counted()

    def __add__(self, other: Counted) -> Counted:
        Counted.operations += 1
        return Counted()

    __sub__ = __add__


Matrix = list[list[Counted]]


def numbers(rows: int, columns: int) -> Matrix:
    return [[Counted() for _ in range(columns)] for _ in range(rows)]


def vector(size: int) -> list[Counted]:
    return [Counted() for _ in range(size)]


def transposed_times(state: Matrix, by: list[Counted]) -> list[Counted]:
    """S^T x, counting a multiply and an add for each entry as a dot product's hardware does."""
    read = vector(len(state[0]))
    for row, factor in zip(state, by, strict=True):
        read = [so_far + entry * factor for so_far, entry in zip(read, row, strict=True)]
    return read


def delta_rule_step(state: Matrix, decays: list[Counted]) -> None:
    """One token of one head: decay, read with k, correct v, add the outer product, read with q."""
    key, query, value = vector(len(state)), vector(len(state)), vector(len(state[0]))
    state[:] = [[entry * decay for entry in row] for row, decay in zip(state, decays, strict=True)]
    predicted = transposed_times(state, key)
    before = Counted.operations
    correction = [wanted - found for wanted, found in zip(value, predicted, strict=True)]
    Counted.operations = before  # of the order of dv, not dk dv: left out by the formula
    state[:] = [
        [entry + k * c for entry, c in zip(row, correction, strict=True)] for row, k in zip(state, key, strict=True)
    ]
    transposed_times(state, query)


def mamba2_step(state: Matrix, groups_b: list[Counted], groups_c: list[Counted]) -> None:
    """One token of one head: decay, dt x, its outer product with B added, the read with C, the skip D x."""
    decay, x = Counted(), vector(len(state))
    scaled = [Counted() * entry for entry in x]  # dt x
    state[:] = [[entry * decay for entry in row] for row in state]
    state[:] = [
        [entry + s * b for entry, b in zip(row, groups_b, strict=True)] for row, s in zip(state, scaled, strict=True)
    ]
    for row in state:
        total = Counted()
        for entry, c in zip(row, groups_c, strict=True):
            total = total + entry * c
    _ = [Counted() * entry for entry in x]  # D x


def test_mamba2_in_chunks_is_what_torch_counts() -> None:
    """The state-space dual form of one chunk: scores C B^T, their use, the state read, the state written."""
    chunk, groups, heads, head_dim, state = 16, 2, 4, 5, 6
    mixer = Mamba2(heads=heads, head_dim=head_dim, groups=groups, state=state, kernel=4)
    b, c = torch.ones(groups, chunk, state), torch.ones(groups, chunk, state)
    x, kept = torch.ones(heads, chunk, head_dim), torch.ones(heads, state, head_dim)
    per_head = heads // groups
    with FlopCounterMode(display=False) as counter:
        scores = c @ b.mT
        _ = scores.repeat_interleave(per_head, dim=0) @ x
        _ = c.repeat_interleave(per_head, dim=0) @ kept
        _ = b.repeat_interleave(per_head, dim=0).mT @ x
    assert chunk * mixer.chunked_flops(chunk) == counter.get_total_flops()


def operations_of(run: object) -> int:
    Counted.operations = 0
    run()  # type: ignore[operator]
    return Counted.operations


def test_gated_delta_net() -> None:
    mixer = GatedDeltaNet(key_heads=2, value_heads=6, key_dim=5, value_dim=7, kernel=4)
    one_head = operations_of(lambda: delta_rule_step(numbers(5, 7), [Counted()] * 5))
    assert mixer.recurrence_flops() == 6 * one_head


def test_kimi_delta() -> None:
    mixer = KimiDelta(heads=3, dim=6, kernel=4)
    one_head = operations_of(lambda: delta_rule_step(numbers(6, 6), vector(6)))
    assert mixer.recurrence_flops() == 3 * one_head


def test_mamba2() -> None:
    mixer = Mamba2(heads=4, head_dim=5, groups=2, state=6, kernel=4)
    one_head = operations_of(lambda: mamba2_step(numbers(5, 6), vector(6), vector(6)))
    assert mixer.recurrence_flops() == 4 * one_head


@pytest.mark.parametrize("step", [decode(ANCHOR, 100, batch=3), prefill(ANCHOR, 100, batch=3)])
def test_a_step_has_that_for_every_token_sequence_and_layer(step: object) -> None:
    tokens = 3 * step.tokens  # type: ignore[attr-defined]
    [op] = step.of_kind("recurrence")  # type: ignore[attr-defined]
    assert op.flops == 48 * tokens * 7 * 48 * 128 * 128


def test_the_anchor_s_recurrence_as_known() -> None:
    """226 MFLOP a token without the decay, 1.67 times that in chunks of 64."""
    [mixer] = {layer.mixer for layer in ANCHOR.layers if isinstance(layer.mixer, GatedDeltaNet)}
    assert round(48 * (mixer.recurrence_flops() - mixer.state_size) / 1e6) == 226
    assert round(mixer.chunked_flops(64) / (mixer.recurrence_flops() - mixer.state_size), 2) == 1.67


def test_llama_cpp_s_own_log_for_the_anchor() -> None:
    """16384.00 MiB for 262144 cells, and 598.50 MiB for four sequences of recurrent and conv state.

    llama.cpp keeps K-1 = 3 conv columns, at 4 bytes.
    """
    kept = resident(ANCHOR, batch=1, max_tokens=262_144, formats=Formats(conv="fp32"))
    assert kept.kv_allocated == 16_384 * 2**20
    assert kept.kv_allocated // 262_144 == 65_536
    four = resident(ANCHOR, batch=4, formats=Formats(conv="fp32"))
    assert four.state + four.conv == 598.5 * 2**20
    assert (four.state + four.conv) // 4 == 156_893_184


def test_states_are_written_by_prefill_and_read_and_written_by_decode() -> None:
    state, conv = 150_994_944, 48 * 10_240 * 3 * 2
    reading, writing = prefill(ANCHOR, 9, batch=2).bytes, decode(ANCHOR, 10, batch=2).bytes
    assert (reading.state_read, reading.state_write) == (0, 2 * state)
    assert (reading.conv_read, reading.conv_write) == (0, 2 * conv)
    assert (writing.state_read, writing.state_write) == (2 * state, 2 * state)
    assert (writing.conv_read, writing.conv_write) == (2 * conv, 2 * conv)
    assert prefill(ANCHOR, 9, convention=LESSON).bytes.conv_write == 0


def test_what_is_read_and_written_in_place_is_in_the_working_set_once() -> None:
    step = decode(ANCHOR, 1000)
    state, conv = step.bytes.state_read, step.bytes.conv_read
    assert step.working_set_bytes == step.bytes.total - state - conv
    assert state > 0
    assert conv > 0


def test_the_whole_kernel_is_kept_where_a_convention_says_so() -> None:
    everything = replace(ENGINE, conv="K")
    assert resident(ANCHOR, convention=everything).conv == 48 * 10_240 * 4 * 2 == 3_932_160


def test_kimi_linear_and_kimi_k3() -> None:
    linear, k3 = (catalogue.load(f"moonshotai/{name}") for name in ("Kimi-Linear-48B-A3B-Instruct", "Kimi-K3"))
    assert resident(linear).state == 20 * 32 * 128 * 128 * 4
    assert resident(linear, convention=replace(ENGINE, conv="K")).conv == 3 * 4096 * 4 * 2 * 20
    assert round(resident(k3).state / 1e6) == 434


def test_kimi_k3_s_output_gates_are_as_wide_as_what_they_gate() -> None:
    """96 heads x 128 values from a hidden size of 7168, in each of its 24 latent layers."""
    k3 = catalogue.load("moonshotai/Kimi-K3")
    gates = [op for op in decode(k3, 10).ops if op.name == "output_gate_proj"]
    assert sum(op.count for op in gates) == 24
    assert {(op.k, op.n) for op in gates} == {(7168, 96 * 128)}
