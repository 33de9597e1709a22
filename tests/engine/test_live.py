"""What the web process remembers of runs: how much, for how long, and in which order it forgets."""

from __future__ import annotations

import asyncio
import json

import pytest
from records import run, step

from engine import history
from engine.errors import Sentence
from engine.history import History
from engine.live import COLUMNS, LiveRun, events_of
from engine.record import Progress, RunRequest
from engine.turns import Turns

REFUSED = Sentence(template="The disk is full.")


def live(run_id: str = "aaaaaaaaaaaa", owner: str = "a") -> LiveRun:
    return LiveRun(run_id, owner, RunRequest(model="tiny", prompt="x"), "2026-01-02T03:04:05+00:00")


def ended(number: int, *, steps: int = 1, notice: Sentence | None = None) -> LiveRun:
    each = live(f"run{number:09}")
    each.end(run(each.id, decode_ns=(1_000_000,) * (steps - 1)), notice)
    return each


# ---- history -------------------------------------------------------------------------------------


def test_the_oldest_that_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_RUNS", 3)
    remembered, waiting = History(), live("waitingwaiti")
    remembered.add(waiting)
    runs = [ended(number) for number in range(6)]
    for each in runs:
        remembered.add(each)
    assert [remembered.get(each.id) is each for each in runs] == [False, False, False, True, True, True]
    assert remembered.get(waiting.id) is waiting


def test_long_runs_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_STEPS", 25)
    remembered = History()
    runs = [ended(number, steps=10) for number in range(4)]
    for each in runs:
        remembered.add(each)
    assert [remembered.get(each.id) is each for each in runs] == [False, False, True, True]
    huge = ended(9, steps=100)
    remembered.add(huge)
    assert remembered.get(huge.id) is huge  # the newest stays, however long


def test_what_could_not_be_saved_is_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_RUNS", 1)
    monkeypatch.setattr(history, "KEPT_UNSAVED", 2)
    remembered = History()
    unsaved = [ended(number, notice=REFUSED) for number in range(3)]
    for each in (*unsaved, ended(10), ended(11), ended(12)):
        remembered.add(each)
    assert [remembered.get(each.id) is each for each in unsaved] == [False, True, True]


# ---- one live run --------------------------------------------------------------------------------


def events(each: LiveRun) -> list[dict[str, object]]:
    return [json.loads(event) for event in each.events(0)]


def test_steps_that_came_only_with_the_record_are_published_too() -> None:
    each, record = live(), run("aaaaaaaaaaaa")
    each.extend(record.steps[:2])
    each.end(record, None)
    assert [event["type"] for event in events(each)] == ["steps", "steps", "end"]
    assert [event.get("first") for event in events(each)] == [0, 2, None]
    assert each.view(0).steps == record.steps


def test_a_state_is_said_once() -> None:
    each, progress = live(), Progress(sentence=REFUSED, fraction=0.5)
    for _ in range(2):
        each.advance("loading")
    for _ in range(2):
        each.advance("calibrating", progress)
    assert [event["state"] for event in events(each)] == ["loading", "calibrating"]


def test_a_place_is_said_when_it_changes() -> None:
    each = live()
    for place in (2, 2, 1):
        each.wait_at(place, 10.0 * place)
    assert [event["place"] for event in events(each)] == [2, 1]
    assert (each.view(0).place, each.view(0).expected_wait_s) == (1, 10.0)


def test_what_is_left_of_a_run_is_told_by_its_own_steps() -> None:
    each = LiveRun("a" * 12, "a", RunRequest(model="tiny", prompt="x", max_new_tokens=10), "2026-01-02T03:04:05+00:00")
    assert each.steps_left_s() == 0.0
    each.extend(run(each.id, decode_ns=(1_000_000_000,) * 3).steps)
    done_s = sum(step.time_ns for step in each.steps) / 1e9
    assert each.steps_left_s() == pytest.approx(done_s / 4 * 6)


def test_a_viewer_whose_loop_is_gone_does_no_harm() -> None:
    each = live()

    async def leave() -> None:
        asyncio.get_running_loop().call_later(0.01, asyncio.get_running_loop().stop)
        await each.wait_async(0, 60)

    loop = asyncio.new_event_loop()
    task = loop.create_task(leave())
    loop.run_forever()
    loop.close()
    each.advance("loading")
    assert len(each.events(0)) == 1
    assert not task.done()
    task.get_coro().close()  # type: ignore[union-attr]


def test_columns_are_all_of_one_length() -> None:
    told = [json.loads(event) for event in events_of(run())]
    steps = told[1]
    assert {len(steps[name]) for name in COLUMNS} == {4}
    assert steps["datasheet_ns"] == [None] * 4
    assert steps["weights"] == [step(0, 1).bytes.weights] * 4


# ---- turns ---------------------------------------------------------------------------------------


def test_owners_take_turns_however_much_each_asks() -> None:
    turns: Turns[LiveRun] = Turns()
    for owner, count in (("a", 3), ("b", 1), ("c", 2)):
        for number in range(count):
            turns.put(live(f"{owner}{number}", owner))
    assert len(turns) == 6
    foreseen = [each.id for each in turns]
    assert foreseen == ["a0", "b0", "c0", "a1", "c1", "a2"]
    assert [turns.take().id for _ in range(6)] == foreseen  # type: ignore[union-attr]
    assert turns.take() is None


def test_what_is_removed_loses_its_turn() -> None:
    turns: Turns[LiveRun] = Turns()
    for owner in "abc":
        turns.put(live(owner, owner))
    assert turns.remove("b") is not None
    assert turns.remove("b") is None
    assert [each.id for each in turns] == ["a", "c"]
