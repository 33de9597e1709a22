"""The queue and the real worker behind it: order, ownership, cancelling, records, viewers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from records import said
from service import MODEL, ask, ask_long, new_store, wait_for_steps, wait_until

from engine import broker as broker_module
from engine import desk
from engine.broker import Broker
from engine.errors import LabError
from engine.live import COLUMNS
from engine.record import RunRequest
from engine.store import Store

END_S = 60.0


@pytest.fixture
def busy(broker: Broker) -> Iterator[str]:
    """A long run that keeps the worker busy; cancelled afterwards."""
    run_id = broker.submit(ask_long(), "someone busy")
    wait_for_steps(broker, run_id)
    yield run_id
    broker.cancel(run_id, "someone busy")
    broker.wait_for(run_id, END_S)


def run_apart(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread of its own: the browser tests leave a running event loop in this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


# ---- a run ---------------------------------------------------------------------------------------


def test_a_run_becomes_a_record(broker: Broker, store: Store) -> None:
    run_id = broker.submit(ask(), "a")
    run = broker.wait_for(run_id, END_S)
    assert run.state == "done"
    assert (len(run.steps), run.steps[0].phase, run.steps[-1].phase) == (8, "prefill", "decode")
    assert run.prompt is not None
    assert run.prompt.token_ids == list(b"Once upon a time")
    assert [step.context for step in run.steps] == [16 + index for index in range(8)]
    assert run.output.token_ids == [step.token_ids[0] for step in run.steps]
    assert run.output.text == "".join(step.text for step in run.steps)
    assert run.output.stopped_by == "length"
    assert all(step.time_ns > 0 and step.predicted_ns.expected >= step.predicted_ns.measured_roof for step in run.steps)
    assert [step.phase for step in run.warm_up_steps] == ["prefill", "decode", "decode", "decode"]
    assert run.model is not None
    assert (run.model.id, run.model.weights, run.model.weight_format) == (MODEL, "random", "fp32")
    assert run.device is not None
    assert run.device.threads == 1
    assert run.probe is not None
    assert run.probe.before_ns > 0
    assert run.probe.moved == pytest.approx(run.probe.after_ns / run.probe.before_ns - 1)
    assert run.summary is not None
    assert run.summary.tokens_per_s is not None
    assert store.get(run_id) == run
    assert broker.snapshot(run_id).state == "done"


def test_the_same_seed_draws_the_same_tokens(broker: Broker) -> None:
    drawn = [
        broker.wait_for(broker.submit(ask(temperature=1.0, top_k=50, seed=seed), "a"), END_S).output.token_ids
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_bytes_resident_are_the_models_own(broker: Broker) -> None:
    run = broker.wait_for(broker.submit(ask(batch=2, max_new_tokens=3), "a"), END_S)
    first, last = run.steps[0].resident_bytes, run.steps[-1].resident_bytes
    assert first.kv_allocated == last.kv_allocated
    assert last.kv_filled == last.kv_allocated  # 16 tokens of prompt and 2 more fill the 18 positions
    assert first.kv_filled * 18 == last.kv_filled * 16


# ---- refused before it is queued -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (ask(prompt=""), "The prompt is empty"),
        (ask(prompt="\ud800"), "half of a character"),
        (ask(prompt="x" * 1_000_001), "1,000,001 characters"),
        (ask(max_new_tokens=0), "The length to write is 0"),
        (ask(max_new_tokens=-5), "The length to write is -5"),
        (ask(model="gpt-7"), "There is no model gpt-7"),
        (ask(model="/etc"), "There is no model /etc"),
        (ask(model="../../etc/passwd"), "There is no model"),
        (ask(dtype="int3"), "int3 is not a type"),
        (ask(prompt="x" * 5000), "The prompt is 5,000 tokens long; this model reads at most 2,048"),
        (ask(chat=True), "no chat template"),
    ],
)
def test_bad_input_is_one_sentence_and_takes_no_turn(broker: Broker, request_: RunRequest, sentence: str) -> None:
    with pytest.raises(LabError) as error:
        broker.submit(request_, "hasty")
    assert sentence in said(error.value)
    assert broker.active_run("hasty") is None


def test_what_only_the_worker_can_know_fails_with_one_sentence(broker: Broker) -> None:
    run = broker.wait_for(broker.submit(ask(device="tpu"), "a"), END_S)
    assert run.state == "failed"
    assert run.error is not None
    assert "There is no device tpu here" in str(run.error)
    assert run.steps == []


@pytest.mark.parametrize("run_id", ["", "x" * 12, "../../etc/pa", "'; DROP TABLE runs;--", "x" * 10**6])
def test_a_hostile_id_is_no_run(broker: Broker, run_id: str) -> None:
    uses = (broker.snapshot, broker.record, broker.events, lambda each: broker.cancel(each, "a"))
    for use in uses:
        with pytest.raises(LabError) as error:
            use(run_id)
        assert len(said(error.value)) < 200


# ---- turns ---------------------------------------------------------------------------------------


def test_three_owners_are_served_in_turn(broker: Broker, busy: str) -> None:
    """Each has one run at a time; whoever asks again joins behind those who wait."""
    ids = {owner: broker.submit(ask(), owner) for owner in "abc"}
    assert [broker.snapshot(ids[owner]).place for owner in "abc"] == [1, 2, 3]
    waits = [broker.snapshot(ids[owner]).expected_wait_s for owner in "abc"]
    assert waits == sorted(waits)  # type: ignore[type-var]
    with pytest.raises(LabError, match="You have a run that has not ended"):
        broker.submit(ask(), "a")
    broker.cancel(busy, "someone busy")
    broker.wait_for(ids["a"], END_S)
    ids["a again"] = broker.submit(ask(), "a")
    records = [broker.wait_for(ids[name], END_S) for name in ("a", "b", "c", "a again")]
    assert [record.state for record in records] == ["done"] * 4
    order = sorted(ids, key=lambda name: broker._history.get(ids[name]).started_at)  # type: ignore[union-attr,arg-type,return-value]
    assert order == ["a", "b", "c", "a again"]


def test_a_full_queue_says_how_long_it_is(broker: Broker, busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "QUEUE_LIMIT", 2)
    waiting = [(broker.submit(ask(), owner), owner) for owner in ("a", "b")]
    with pytest.raises(LabError) as error:
        broker.submit(ask(), "late")
    assert said(error.value).startswith("The queue is full: 2 wait already, which takes about ")
    assert broker.active_run("late") is None
    for run_id, owner in waiting:
        broker.cancel(run_id, owner)


def test_many_threads_of_one_owner_get_one_run(broker: Broker, busy: str) -> None:
    accepted, start = [], threading.Barrier(8)

    def submit() -> None:
        start.wait()
        try:
            accepted.append(broker.submit(ask(), "eager"))
        except LabError:
            return

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == 1
    broker.cancel(accepted[0], "eager")


# ---- cancelling ----------------------------------------------------------------------------------


def test_cancel_while_queued(broker: Broker, store: Store, busy: str) -> None:
    first, second = broker.submit(ask(), "a"), broker.submit(ask(), "b")
    assert broker.snapshot(second).place == 2
    broker.cancel(first, "a")
    run = broker.wait_for(first, END_S)
    assert (run.state, run.steps, run.output.stopped_by) == ("cancelled", [], "cancelled")
    assert store.get(first) == run
    assert broker.snapshot(second).place == 1
    assert broker.active_run("a") is None
    broker.cancel(second, "b")


def test_cancel_while_running_keeps_what_was_measured(broker: Broker, store: Store) -> None:
    run_id = broker.submit(ask_long(), "a")
    wait_for_steps(broker, run_id, 3)
    asked = time.monotonic()
    broker.cancel(run_id, "a")
    run = broker.wait_for(run_id, END_S)
    slowest_s = max(step.time_ns for step in run.steps) / 1e9
    assert time.monotonic() - asked < 0.5 + 3 * slowest_s + 2 * run.probe.after_ns * 6 / 1e9  # type: ignore[union-attr]
    assert run.state == "cancelled"
    assert 3 <= len(run.steps) < 2000
    assert run.output.stopped_by == "cancelled"
    assert run.summary is not None
    assert store.get(run_id) == run
    broker.cancel(run_id, "a")  # a run that has ended stays as it is
    assert broker.record(run_id).state == "cancelled"
    assert broker.wait_for(broker.submit(ask(), "a"), END_S).state == "done"


def test_only_the_owner_cancels(broker: Broker, busy: str) -> None:
    queued = broker.submit(ask(), "a")
    for run_id in (busy, queued):
        with pytest.raises(LabError, match="Only the one who started a run can cancel it"):
            broker.cancel(run_id, "somebody else")
    assert broker.snapshot(busy).state == "running"
    broker.cancel(queued, "a")


# ---- viewers -------------------------------------------------------------------------------------


def test_events_say_what_the_record_says(broker: Broker) -> None:
    run_id = broker.submit(ask(max_new_tokens=20), "a")
    texts: list[str] = []
    while not texts or json.loads(texts[-1])["type"] != "end":
        texts += broker.wait(run_id, len(texts), END_S)
    events, run = [json.loads(text) for text in texts], broker.record(run_id)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "queue"
    assert kinds.index("prompt") < kinds.index("steps")
    states = [event["state"] for event in events if event["type"] == "state"]
    assert states == ["loading", "warming_up", "running"]
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for event in events:
        if event["type"] == "steps":
            assert event["first"] == len(columns["index"])
            for name in COLUMNS:
                columns[name] += event[name]
    assert columns["index"] == list(range(20))
    assert columns["time_ns"] == [step.time_ns for step in run.steps]
    assert columns["total"] == [step.bytes.total for step in run.steps]
    assert columns["expected_ns"] == [step.predicted_ns.expected for step in run.steps]
    assert columns["token_ids"] == [step.token_ids for step in run.steps]


def test_a_finished_run_from_the_store_reads_the_same(broker: Broker, store: Store) -> None:
    run_id = broker.submit(ask(), "a")
    run = broker.wait_for(run_id, END_S)
    later = Broker(store, start_worker=False)  # a fresh process: its memory is empty, its worker is off
    assert later.record(run_id) == run
    assert later.snapshot(run_id, since=5).steps == run.steps[5:]
    events = [json.loads(text) for text in later.events(run_id)]
    assert [event["type"] for event in events] == ["prompt", "steps", "end"]
    assert events[1]["time_ns"] == [step.time_ns for step in run.steps]
    assert run_apart(later.wait_async(run_id, 2, 1.0)) == later.events(run_id)[2:]
    assert later.machine().worker == "off"


def test_hundreds_of_viewers_share_each_event(broker: Broker) -> None:
    run_id = broker.submit(ask(max_new_tokens=30), "a")

    async def view() -> list[str]:
        seen: list[str] = []
        while not seen or '"type":"end"' not in seen[-1]:
            news = await broker.wait_async(run_id, len(seen), END_S)
            assert news  # woken by what came, not by the end of its patience
            seen += news
        return seen

    async def crowd() -> list[list[str]]:
        return await asyncio.gather(*(view() for _ in range(300)))

    views = run_apart(crowd())
    assert all(each == views[0] for each in views)
    # Serialised once: everyone holds the very same strings.
    assert {id(each[-1]) for each in views} == {id(views[0][-1])}


def test_waiting_ends_without_news(broker: Broker, busy: str) -> None:
    queued = broker.submit(ask(), "a")
    seen = len(broker.events(queued))
    assert run_apart(broker.wait_async(queued, seen, 0.05)) == []
    assert broker.wait(queued, seen, 0.05) == []
    broker.cancel(queued, "a")


def test_a_snapshot_brings_only_what_is_new(broker: Broker, busy: str) -> None:
    view = wait_for_steps(broker, busy, 4)
    later = broker.snapshot(busy, since=view.steps_so_far - 2)
    assert later.steps[0].index == view.steps_so_far - 2


# ---- the rest of the machine ---------------------------------------------------------------------


def test_the_machine_as_a_page_sees_it(broker: Broker, busy: str) -> None:
    machine = broker.machine()
    assert machine.worker == "busy"
    assert machine.device is not None
    assert machine.device.kind == "cpu"
    assert machine.ceilings is not None
    assert machine.calibration is None
    assert not machine.calibrating


def test_a_fetch_of_what_is_here_ends_at_once(broker: Broker) -> None:
    broker.fetch(MODEL, "a")
    wait_until(lambda: broker.fetch_progress()[MODEL].ended, END_S, "the fetch")
    assert broker.fetch_progress()[MODEL].state == "done"
    with pytest.raises(LabError, match="There is no model nothing"):
        broker.fetch("nothing", "a")


def test_a_calibration_can_be_cancelled(broker: Broker) -> None:
    task = broker.calibrate("a")
    assert broker.calibrate("b") == task  # one at a time
    pid = broker.worker_pid
    wait_until(lambda: (c := broker.machine().calibration) is not None and c.progress is not None, END_S, "progress")
    assert broker.machine().calibrating
    broker.cancel(task, "a")
    wait_until(lambda: not broker.machine().calibrating, END_S, "the end")
    calibration = broker.machine().calibration
    assert calibration is not None
    assert calibration.state == "cancelled"
    assert broker.worker_pid == pid  # by itself, not by being killed
    assert broker.wait_for(broker.submit(ask(), "a"), END_S).state == "done"


def test_one_broker_a_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = new_store(tmp_path_factory.mktemp("own"))
    found: list[Broker] = []
    threads = [
        threading.Thread(target=lambda: found.append(broker_module.start(store, start_worker=False))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(each) for each in found} == {id(broker_module.current())}
    assert broker_module.current().machine().worker == "off"
    broker_module.stop()
    broker_module.stop()
