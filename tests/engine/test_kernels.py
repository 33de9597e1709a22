"""The compiled kernels against plain torch: in every weight format, for every kind of step and of thread."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_helpers import reference

from engine import kernels
from engine import spec as specs
from engine.arena import Arena
from engine.dry_step import NO_TIME_NS, Case, DryModel
from engine.errors import LabError
from engine.kernels import entry
from engine.laps import HostLaps
from engine.ledger import Formats, resident
from engine.ledger import decode as ledger_decode
from engine.model.decoder import Decoder
from engine.model.packed import GROUPS, pack

FORMATS = ("fp32", "bf16", *GROUPS)
# No hidden size fills a group of 128; query heads share key heads or not; biases; norms of heads; an odd vocabulary.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"hidden_size": 96, "intermediate_size": 160, "head_dim": 32}),
    "tied": ("llama", {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {"hidden_size": 192, "num_key_value_heads": 6}),
    "qwen3": ("qwen3", {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 64, "num_key_value_heads": 1}),
}


def decoder(family: str, weights: str, monkeypatch: pytest.MonkeyPatch, *, compiled: bool) -> Decoder:
    kind, changes = FAMILIES[family]
    model = reference(kind, **changes)
    with monkeypatch.context() as patch:
        if not compiled:
            patch.setenv("ROOFLINE_LAB_KERNELS", "torch")
        spec = specs.read(model.config.to_dict())
        made = Decoder.from_tensors(spec, model.state_dict(), max_tokens=200, weights=weights)
    assert (made._compiled is not None) == compiled
    return made


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_equal_plain_torchs_on_the_same_weights(
    family: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of one to seven tokens, decode behind a short and a long context, batches of one and of three."""
    ours = decoder(family, weights, monkeypatch, compiled=True)
    plain = decoder(family, weights, monkeypatch, compiled=False)
    torch.manual_seed(5)
    for batch, tokens in ((1, 1), (1, 4), (3, 2), (1, 7), (1, 150)):
        prompt = torch.randint(257, (batch, tokens))
        assert apart(ours.prefill(prompt), plain.prefill(prompt)) < 1e-4
        for _ in range(2):
            token = torch.randint(257, (batch,))
            assert apart(ours.decode(token), plain.decode(token)) < 1e-4


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = decoder("llama", "fp32", monkeypatch, compiled=True)
    plain = decoder("llama", "fp32", monkeypatch, compiled=False)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        prompt, token = torch.arange(140)[None], torch.tensor([7])
        ours.prefill(prompt), plain.prefill(prompt)
        for _ in range(3):  # shared out by positions from 128 on
            assert apart(ours.decode(token), plain.decode(token)) < 1e-4
    finally:
        torch.set_num_threads(before)


def test_every_row_can_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = decoder("qwen3", "fp32", monkeypatch, compiled=True)
    plain = decoder("qwen3", "fp32", monkeypatch, compiled=False)
    for model in (ours, plain):
        model.prefill(torch.arange(9)[None])
    drafted = torch.tensor([[3, 1, 4, 1]])
    assert apart(ours.score(drafted), plain.score(drafted)) < 1e-4


def test_threads_of_pythons_do_the_same_work() -> None:
    from engine.kernels.entry import counter_address
    from engine.kernels.team import Team

    came = ctypes.c_int64(0)
    crew = Team(3)
    for _ in range(20):
        crew.run(counter_address(), ctypes.addressof(came))
        while came.value % 3:
            pass
    assert came.value == 60


@pytest.mark.parametrize(("n", "k"), [(33, 96), (18, 1312)])
def test_int8_products_err_by_no_more_than_their_rounding(n: int, k: int) -> None:
    """Against float64. An activation is off by up to half a step of its block of 512, evenly: its deviation is
    step / sqrt(12). A huge one costs its own block alone. With more than eight rows the product is fp32's.
    """
    from engine.kernels.single import SingleProduct

    torch.manual_seed(2)
    packed = pack(torch.randn(n, k), "int8", Arena())
    exact = packed.dequantise().double()
    product = SingleProduct("int8", packed.stored, packed.scales, k=k, n=n, group=32)
    x = torch.randn(9, k) * torch.logspace(-3, 4, 9)[:, None]
    x[:, 5] *= 300
    x[2, 512:] = 0
    blocks = torch.nn.functional.pad(x, (0, -k % 512)).view(9, -1, 512)
    steps = (blocks.abs().amax(2) / 32767).repeat_interleave(512, 1)[:, :k].double()
    for rows in range(1, 10):
        given = x[:rows].double()
        deviation = (steps[:rows].square() @ exact.T.square() / 12).sqrt()
        bound = 5 * deviation * (rows < 9) + 1e-6 * given.abs() @ exact.abs().T
        assert bool(((product(x[:rows]) - given @ exact.T).abs() <= bound).all())


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("family", FAMILIES)
def test_resident_bytes_are_the_ledgers(family: str, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder(family, weights, monkeypatch, compiled=True)
    formats = Formats(weights=weights, kv="fp32", plain="fp32", embedding=weights)
    assert model.resident_weight_bytes == resident(model.spec, batch=1, max_tokens=1, formats=formats).weights


@pytest.mark.parametrize(("format_", "bound"), [("int8", 1 / 127), ("int4", 1 / 8), ("int4-g32", 1 / 8)])
def test_no_weight_is_further_off_than_a_step(format_: str, bound: float) -> None:
    """Rounding errs by half a step, bf16 scales by 2^-8 of a weight; int4's largest positive may be cut by one step."""
    torch.manual_seed(1)
    weight = torch.randn(40, 288)
    weight[3] = 0
    packed = pack(weight, format_, Arena())
    size = packed.group or 288
    largest = torch.nn.functional.pad(weight, (0, -288 % size)).view(40, -1, size).abs().amax(2, keepdim=True)
    largest = largest.expand(-1, -1, size).reshape(40, -1)[:, :288]
    steps = 0.51 if format_ == "int8" else 1.01
    assert bool(((packed.dequantise() - weight).abs() <= largest * (bound * steps + 2**-7)).all())
    ids = torch.tensor([3, 0, 39])
    assert torch.equal(packed.rows(ids), packed.dequantise()[ids])


def test_a_size_that_tiles_do_not_pass_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = reference("llama")  # hidden 48
    made = Decoder.from_tensors(specs.read(model.config.to_dict()), model.state_dict())
    assert made._compiled is None


def test_plain_torch_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_KERNELS", "torch")
    assert not kernels.usable()
    monkeypatch.setenv("ROOFLINE_LAB_KERNELS", "assembler")
    with pytest.raises(LabError, match="assembler"):
        kernels.usable()


def test_logits_of_a_step_stay_when_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder("llama", "fp32", monkeypatch, compiled=True)
    first = model.prefill(torch.tensor([[1, 2]]))
    kept = first.clone()
    model.decode(torch.tensor([3]))
    assert np.array_equal(first.numpy(), kept.numpy())


@pytest.mark.parametrize("weights", ["fp32", "int8"])
def test_a_compiled_steps_laps_are_the_ledgers_ops(weights: str) -> None:
    """Each op of the ledger has a lap, and those that lie within another's take next to nothing."""
    kind, changes = FAMILIES["qwen3"]
    spec = specs.read(reference(kind, **changes).config.to_dict())
    with torch.inference_mode():
        model = DryModel(spec, torch.float32, torch.device("cpu"), layers=3, weights=weights)
        case, laps = Case(2, 1, 9), HostLaps()
        model.step(case, laps, *model.cache_for(case), layers=3)
    assert model.most_compiled_rows
    found = laps.totals()
    step = ledger_decode(spec, 9, batch=2, formats=Formats.engine("fp32", weights))
    linears = {(op.rows, op.k, op.n): op.count for op in step.ops if op.kind == "linear"}
    assert {(key.rows, key.k, key.n): count for key, (_, count) in found.items() if key.kind == "linear"} == linears
    timed = {"linear", "attention", "embedding"}
    assert {key.kind for key in found} == timed | {"norm", "rotary", "residual", "swiglu"}
    assert all(time_ns / count > NO_TIME_NS for key, (time_ns, count) in found.items() if key.kind in timed)
    assert all(time_ns / count == NO_TIME_NS for key, (time_ns, count) in found.items() if key.kind not in timed)


@pytest.mark.parametrize("tokens", [1, 4])
def test_a_dry_step_is_called_as_a_runs_step_is(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small model the call itself is a tenth of the step: what it takes is in the first lap."""
    kind, changes = FAMILIES["llama"]
    spec, late_ns = specs.read(reference(kind, **changes).config.to_dict()), 30_000_000
    step = Decoder.decode if tokens == 1 else Decoder.by_kernels

    def late(self: Decoder, ids: torch.Tensor) -> torch.Tensor:
        time.sleep(late_ns / 1e9)
        return step(self, ids)

    monkeypatch.setattr(Decoder, step.__name__, late)
    with torch.inference_mode():
        model = DryModel(spec, torch.float32, torch.device("cpu"), layers=3)
        case, laps = Case(2, tokens, 9), HostLaps()
        for _ in range(2):  # the cache is the same one the second time
            model.step(case, laps, *model.cache_for(case), layers=3)
    ((first_ns, _),) = [lap for key, lap in laps.totals().items() if key.kind == "embedding"]
    assert late_ns < first_ns < 100 * late_ns


@pytest.mark.parametrize("suffix", ["nbc", "nbi"])
def test_a_damaged_file_of_compiled_code_is_thrown_away(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fresh() -> Path:
        tmp_path.joinpath("kept").mkdir(exist_ok=True)
        return tmp_path / "kept"

    monkeypatch.setattr(entry, "_cache_folder", fresh)
    assert entry.compiled(entry._count)
    [kept] = tmp_path.rglob(f"*.{suffix}")
    kept.write_bytes(b"")
    assert entry.compiled(entry._count)
    assert not kept.exists()
    assert entry.compiled(entry._count)
    assert len(list(tmp_path.rglob(f"*.{suffix}"))) == 1


def test_more_threads_than_processors_still_finish() -> None:
    """A thread that waits lets the one it waits for run. Were it to look on for its usual time, twenty steps of 16
    meetings would take a minute.
    """
    from engine.kernels.team import LESS_PATIENCE, PATIENCE, meeting_place, processors
    from engine.model import load

    model, before, many = load("tiny-3.7m", max_tokens=64), torch.get_num_threads(), processors() + 1
    assert meeting_place(processors())[2] == PATIENCE > meeting_place(many)[2] == LESS_PATIENCE

    def written(threads: int) -> list[int]:
        torch.set_num_threads(threads)
        token, found = model.prefill(torch.arange(5)[None]).argmax(-1), []
        for _ in range(20):
            found.append(int(token))
            token = model.decode(token).argmax(-1)
        return found

    try:
        alone = written(1)
        started = time.monotonic()
        assert written(many) == alone
        assert time.monotonic() - started < 10
    finally:
        torch.set_num_threads(before)
