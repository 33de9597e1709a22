"""Which way a product goes is measured when a model is loaded, remembered for the machine, and never asked of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from family_helpers import config_of, reference
from model_helpers import reference as dense_reference
from records import ceilings
from small_models import save_llama

from engine import bench, kernels, spec
from engine.arena import Arena
from engine.dry_parts import DryParts
from engine.dry_step import DryModel
from engine.model import choosing, choosing_steps, contest, few_rows, load
from engine.model.choosing import settle
from engine.model.hybrid import HybridDecoder
from engine.model.linear import Linear, linears_in, most_rows_of
from engine.model.packed import pack
from engine.tell import Teller

pytestmark = pytest.mark.skipif(not kernels.usable(), reason="the compiled kernels need numba and a POSIX system")

FP32, BF16 = torch.float32, torch.bfloat16
DAMAGES = (
    *("", "{", "[1]", "[" * 10**5),
    *(f'{{"fp32 fp32 48x64": {found}}}' for found in ('"all"', "[1.5]", "[3]", f"[1, {10**30}]", "[-1]")),
)
UNHEARD_OF = ([], [64], [1, 64], [1, 2, 4], [1, 2, 4, 8, 32], [8, 4, 2, 1])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab that knows nothing yet, in a process that knows nothing yet."""
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(tmp_path))
    few_rows.forget_choices()
    return tmp_path


def some(n: int = 48, k: int = 64) -> Linear:
    return Linear.of(torch.randn(n, k))


def file_of(home: Path) -> Path:
    (found,) = (home / "products").iterdir()
    return found


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """Nanoseconds that the kernel and torch are said to take, by rows; a tie unless changed. Counts as `asked`."""
    said: dict[Any, Any] = {"asked": 0}

    def fastest(ways: Any, slices: Any, x: torch.Tensor) -> list[int]:
        said["asked"] += 1
        return list(said.get(len(x) if x.is_floating_point() else x.numel(), (5, 5)))  # activations, or token ids

    monkeypatch.setattr(contest, "fastest", fastest)
    return said


def test_both_ways_are_really_timed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "BUDGET_S", 60.0)  # however busy this machine is
    parts = [some(), some(), some(n=20_000, k=512), Linear.of(pack(torch.randn(48, 64), "int4", Arena()))]
    settle(parts, FP32)
    for part in parts:
        assert part.few is not None
        choice = part.few.choice(FP32)
        assert choice is not None
        assert choice.decided
    kept = json.loads(file_of(home).read_text())
    assert set(kept) == {"fp32 fp32 48x64", "fp32 fp32 8192x512", "int4-128 fp32 48x64"}
    assert all(set(won) <= set(few_rows.TRIED_ROWS) for won in kept.values())


def test_each_number_of_rows_goes_the_faster_way(times: dict[Any, Any]) -> None:
    times |= {1: (3, 4), 2: (9, 9), 4: (5, 4), 8: (2, 9), 16: (5, 4), 32: (7, 4), 64: (1, 9)}
    part = some()
    settle([part], FP32)
    taken = [rows for rows in range(1, 70) if part.few and part.few.takes(torch.zeros(rows, 64))]
    assert taken == [1, 2, 5, 6, 7, 8], "hopeless at 32, so 64 was not tried"


def test_what_is_known_is_not_measured_again(home: Path, times: dict[Any, Any]) -> None:
    settle([some()], FP32)
    assert times["asked"] == len(few_rows.TRIED_ROWS)
    settle([some()], FP32)
    few_rows.forget_choices()  # another process
    times |= dict.fromkeys(few_rows.TRIED_ROWS, (9, 1))
    part = some()
    settle([part], FP32)
    assert times["asked"] == len(few_rows.TRIED_ROWS)
    assert most_rows_of([part], FP32) == {"few_rows": "64"}
    settle([some(n=49)], FP32)
    assert set(json.loads(file_of(home).read_text())) == {"fp32 fp32 48x64", "fp32 fp32 49x64"}


def test_measuring_the_machine_anew_measures_this_anew(
    home: Path, times: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "calibrate", lambda *_, **__: ceilings())
    monkeypatch.setattr(bench, "for_model", lambda known, *_, **__: known)
    settle([some()], FP32)
    times |= dict.fromkeys(few_rows.TRIED_ROWS, (9, 1))  # that was a busy day
    bench.Bench().calibrate(torch.device("cpu"), Teller("job", lambda _: None, lambda: False))
    part = some()
    assert undecided([part], FP32) != []
    settle([part], FP32)
    assert times["asked"] == len(few_rows.TRIED_ROWS) + 2 * 2, "hopeless with two rows; each loss was looked at again"
    assert most_rows_of([part], FP32) == {"few_rows": "0"}
    assert json.loads(file_of(home).read_text()) == {"fp32 fp32 48x64": []}


def test_other_threads_are_another_machine(home: Path, times: dict[Any, Any]) -> None:
    before = torch.get_num_threads()
    settle([some()], FP32)
    few_rows.forget_choices()
    torch.set_num_threads(before + 1)
    try:
        settle([some()], FP32)
    finally:
        torch.set_num_threads(before)
    assert len(list((home / "products").iterdir())) == 2


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_memory_is_measured_anew(home: Path, damage: str, times: dict[Any, Any]) -> None:
    settle([some()], FP32)
    file_of(home).write_text(damage)
    few_rows.forget_choices()
    settle([some()], FP32)
    assert times["asked"] == 2 * len(few_rows.TRIED_ROWS)
    assert json.loads(file_of(home).read_text()) == {"fp32 fp32 48x64": list(few_rows.TRIED_ROWS)}


def test_a_home_that_cannot_be_written_is_no_matter(home: Path, times: dict[Any, Any]) -> None:
    (home / "products").write_text("a file where the folder would be")
    part = some()
    settle([part], FP32)
    assert most_rows_of([part], FP32) == {"few_rows": "64"}


def test_beyond_its_time_the_rest_goes_unmeasured(monkeypatch: pytest.MonkeyPatch, times: dict[Any, Any]) -> None:
    monkeypatch.setattr(choosing, "BUDGET_S", -1.0)
    part = some()
    settle([part], FP32)
    assert times["asked"] == 0
    assert most_rows_of([part], FP32) == {"few_rows": "8"}


def test_a_slice_of_the_head_chooses_for_all_of_it() -> None:
    """A dry step's head may be cut: it has to go the way that the model's goes."""
    whole, cut = some(n=20_000, k=512), some(n=9_000, k=512)
    assert whole.few
    assert cut.few
    assert whole.few.choice(FP32) is cut.few.choice(FP32)
    assert whole.few.choice(FP32) is not some(n=20_000, k=544).few.choice(FP32)  # type: ignore[union-attr]


def test_a_record_says_up_to_how_many_rows(times: dict[Any, Any]) -> None:
    settle([one := some()], FP32)
    times |= dict.fromkeys((8, 16, 32, 64), (9, 1))
    settle([other := some(n=50)], FP32)
    assert most_rows_of([one, other], FP32) == {"few_rows": "4-64"}
    assert most_rows_of([], FP32) == {}


def undecided(parts: Any, dtype: torch.dtype) -> list[str]:
    choices = [part.few.choice(dtype) for part in linears_in(parts) if part.few is not None]
    return [choice.key for choice in choices if choice is not None and not choice.decided]


@pytest.mark.parametrize("kind", ["qwen3-next", "kimi-linear", "gpt2"])
def test_before_a_dry_walk_all_is_decided(kind: str, times: dict[Any, Any]) -> None:
    shape = spec.read(config_of(reference(kind)))
    with torch.inference_mode():
        DryParts(shape, BF16, torch.device("cpu"), head=True)
    same = HybridDecoder.from_tensors(shape, reference(kind).state_dict(), dtype=BF16)
    times["asked"] = 0
    settle(same.linears, BF16)
    assert times["asked"] == 0, "the model's products were all among the dry step's"
    assert undecided(same.linears, BF16) == []


def test_before_a_dense_dry_walk_too(times: dict[Any, Any]) -> None:
    shape = spec.read(dense_reference("qwen3").config.to_dict())
    with torch.inference_mode():
        walked = DryModel(shape, BF16, torch.device("cpu"), layers=2)
    assert walked.most_compiled_rows == 0
    assert undecided([walked.layers, walked._head], BF16) == []


def test_loading_decides_and_a_record_can_say_what(tmp_path: Path, times: dict[Any, Any]) -> None:
    small = load(str(save_llama(tmp_path / "small")), dtype="bfloat16")
    assert times["asked"] > 0
    assert undecided(small.linears, BF16) == []
    assert small.kernels == {"few_rows": "64"}


def test_a_whole_step_goes_the_faster_way_in_a_run_and_in_a_dry_walk(home: Path, times: dict[Any, Any]) -> None:
    times[32] = (9, 8)
    model = load("tiny-3.7m")
    assert model.kernels == {"whole_steps": "16"}
    assert undecided(model.linears, FP32) == []
    (kept,) = (won for key, won in json.loads(file_of(home).read_text()).items() if key.startswith("whole"))
    assert kept == [1, 2, 4, 8, 16], "64 was not tried"
    times["asked"] = 0
    walked = DryModel(model.spec, FP32, torch.device("cpu"), layers=2)
    assert walked.most_compiled_rows == 16
    few_rows.forget_choices()  # another process
    assert load("tiny-3.7m").kernels == {"whole_steps": "16"}
    assert times["asked"] == 0


@pytest.mark.parametrize("found", UNHEARD_OF, ids=str)
def test_what_is_never_found_of_whole_steps_is_not_believed(
    home: Path, found: list[int], times: dict[Any, Any]
) -> None:
    load("tiny-3.7m")
    kept = json.loads(file_of(home).read_text())
    file_of(home).write_text(json.dumps({key: found if key.startswith("whole") else won for key, won in kept.items()}))
    few_rows.forget_choices()  # another process
    assert load("tiny-3.7m").kernels == {"whole_steps": "64"}
    assert json.loads(file_of(home).read_text()) == kept


def test_a_loss_is_looked_at_again_and_a_draw_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*answers: list[int]) -> float:
        left = iter(answers)
        monkeypatch.setattr(contest, "fastest", lambda *_: next(left))
        return contest.kernels_lose([], iter([]), torch.zeros(1))

    assert said([109, 100]) == 0
    assert said([300, 100], [90, 100]) == 0, "something else ran the first time"
    assert said([300, 100], [150, 120]) == 1.5


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(home: Path, times: dict[Any, Any]) -> None:
    settle([some()], FP32)
    place = file_of(home)
    place.unlink()
    place.mkdir()
    settle([some(n=49)], FP32)
    assert file_of(home) == place


@pytest.mark.parametrize("weights", [None, "bf16", "int8", "int4"])
def test_both_ways_of_a_whole_step_are_really_walked(weights: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By other layers each time, with as many rows as are to be decided, and with the same result."""
    seen: list[int] = []

    def fastest(ways: Any, walks: Any, ids: torch.Tensor) -> list[int]:
        walk = next(walks)
        if isinstance(walk, Linear):  # the head, which chooses for itself
            return [1, 1]
        assert walk.spec.num_layers == len(walk._layers) == 1
        assert walk is not next(walks)
        one, other = (way(walk, ids) for way in ways)
        assert walk.cache.length == ids.shape[1]
        assert (one - other).abs().max() < 2e-3 * other.abs().max()
        seen.append(ids.numel())
        return [1, 1]

    monkeypatch.setattr(contest, "fastest", fastest)
    monkeypatch.setattr(choosing_steps, "WALKED", 2**16)
    load("tiny-3.7m", weights=weights)
    assert seen == [16, 32, 64]
