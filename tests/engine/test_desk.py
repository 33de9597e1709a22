"""The broker's books without a worker: what its events are turned into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from records import ceilings, facts, run
from service import new_store, wait_until

from engine.ceilings import Ceilings
from engine.desk import Desk
from engine.errors import Sentence
from engine.live import LiveRun
from engine.protocol import Advanced, Calibrated, CalibrateJob, FetchJob, Finished, RunJob
from engine.record import Progress, RunRequest
from engine.store import Store
from engine.tasks import Task

DEVICES = [facts(), facts(kind="cuda", name="Test GPU")]
TROUBLE = Sentence(template="It went wrong.")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path)


@pytest.fixture
def desk(store: Store) -> Iterator[Desk]:
    opened = Desk(store, allow_paths=False)
    opened.start()
    yield opened
    opened.stop(5.0)


def live(**changes: object) -> LiveRun:
    request = RunRequest.model_validate({"model": "tiny", "prompt": "x", **changes})
    return LiveRun("aaaaaaaaaaaa", "a", request, "2026-01-02T03:04:05+00:00")


def test_measured_ceilings_are_kept_and_given_to_the_next_run(desk: Desk, store: Store) -> None:
    task = desk.take_in_task(Task("calibrate", "a", device="cpu"))
    job = desk.next_job(DEVICES)
    assert job == CalibrateJob(id=task.id, device="cpu")
    told = Progress(sentence=Sentence(template="Measuring"), fraction=0.5)
    desk.heard(job, Advanced(id=job.id, state="calibrating", progress=told))
    assert desk.machine_view("busy", None, DEVICES).calibrating
    assert task.view().progress == told
    measured = ceilings()
    desk.heard(job, Calibrated(id=job.id, ceilings=measured))
    desk.heard(job, Finished(id=job.id))
    assert (task.view().state, task.ceilings) == ("done", measured)
    assert desk.machine_view("ready", None, DEVICES).ceilings == measured
    wait_until(lambda: store.ceilings(Ceilings.key(facts())) == measured, 10, "the saving")

    desk.take_in_run(live())
    given = desk.next_job(DEVICES)
    assert isinstance(given, RunJob)
    assert given.ceilings == measured


def test_a_run_on_another_device_gets_that_devices_ceilings(desk: Desk, store: Store) -> None:
    on_gpu = ceilings(id="on-gpu", device=DEVICES[1])
    store.put_ceilings(on_gpu)
    store.put_ceilings(ceilings())
    desk.take_in_run(live(device="cuda:0"))
    job = desk.next_job(DEVICES)
    assert isinstance(job, RunJob)
    assert job.ceilings == on_gpu


@pytest.mark.parametrize(
    ("finished", "state"),
    [({}, "done"), ({"error": TROUBLE}, "failed"), ({"cancelled": True}, "cancelled")],
)
def test_how_a_fetch_ended(desk: Desk, finished: dict[str, object], state: str) -> None:
    task = desk.take_in_task(Task("fetch", "a", model="smollm2-135m"))
    job = desk.next_job(DEVICES)
    assert job == FetchJob(id=task.id, model="smollm2-135m")
    desk.heard(job, Finished.model_validate({"id": job.id, **finished}))
    assert (task.view().state, task.view().error) == (state, finished.get("error"))


def test_late_words_of_another_job_are_not_heard(desk: Desk) -> None:
    first = live()
    desk.take_in_run(first)
    job = desk.next_job(DEVICES)
    assert job is not None
    desk.lost(job, TROUBLE)
    wait_until(lambda: first.ended, 10, "the end")
    desk.heard(job, Finished(id=job.id, run=run(job.id)))
    assert first.record is not None
    assert (first.record.state, first.record.error) == ("failed", TROUBLE)
