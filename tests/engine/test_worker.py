"""The engine's process spoken to directly, line by line, without the broker that usually does."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from line_worker import END_S, Worker
from service import MODEL, ask, ask_long, gone, made_up_ceilings, wait_until

from engine.protocol import Cancel, FetchJob, Ping, Shutdown


def test_a_run_line_by_line(worker: Worker) -> None:
    worker.send(worker.run("runrunrunrun").to_line())
    events = worker.until("finished")
    assert {event.id for event in events} == {"runrunrunrun"}
    steps = [step for event in events if event.event == "stepped" for step in event.steps]
    finished = events[-1].run
    assert finished.state == "done"
    assert steps == finished.steps
    assert finished.created_at == "2026-01-02T03:04:05+00:00"
    assert finished.ceilings == made_up_ceilings(worker.device)
    assert not any(event.event == "calibrated" for event in events)  # the ceilings it was given do


def test_steps_come_in_batches(worker: Worker) -> None:
    worker.send(worker.run("batchbatchba", request=ask(max_new_tokens=300)).to_line())
    sizes = [len(event.steps) for event in worker.until("finished") if event.event == "stepped"]
    assert sum(sizes) == 300
    assert max(sizes) <= 8
    assert len(sizes) < 300


def test_predictions_are_made_before_the_run_and_from_the_ceilings_alone(worker: Worker) -> None:
    """The same request twice: times differ, predictions do not."""
    worker.send(worker.run("firstfirstfi").to_line(), worker.run("secondsecond").to_line())
    first, second = worker.until("finished")[-1].run, worker.until("finished")[-1].run
    assert [step.predicted_ns for step in first.steps] == [step.predicted_ns for step in second.steps]
    assert [step.time_ns for step in first.steps] != [step.time_ns for step in second.steps]


@pytest.mark.parametrize("line", [b"\n", b"hello\n", b"{}\n", b'{"op":"rm"}\n', b"\xff\xfe\n", b"[" * 9000 + b"\n"])
def test_nonsense_is_ignored(worker: Worker, line: bytes) -> None:
    worker.send(line, Ping().to_line())
    assert len(worker.until("pong")) == 1


def test_a_ping_is_answered_during_a_run_and_a_cancel_ends_it(worker: Worker) -> None:
    worker.send(worker.run("longlonglong", request=ask_long()).to_line())
    worker.until("stepped")
    worker.send(Ping().to_line())
    worker.until("pong")
    worker.send(Cancel(id="anotheranoth").to_line(), Cancel(id="longlonglong").to_line())
    asked = time.monotonic()
    events = worker.until("finished")
    assert events[-1].run.state == "cancelled"
    assert 0 < len(events[-1].run.steps) < 2000
    assert time.monotonic() - asked < END_S / 2


def test_a_job_cancelled_before_its_turn_ends_without_a_step(worker: Worker) -> None:
    worker.send(
        worker.run("longlonglon2", request=ask_long()).to_line(),
        worker.run("waitwaitwait").to_line(),
        Cancel(id="waitwaitwait").to_line(),
        Cancel(id="longlonglon2").to_line(),
    )
    worker.until("finished")
    last = worker.until("finished")[-1]
    assert (last.id, last.run.state, last.run.steps) == ("waitwaitwait", "cancelled", [])


def test_a_model_larger_than_memory_is_refused_before_it_is_loaded(worker: Worker) -> None:
    request = ask(model="random:Qwen/Qwen3-32B", prompt="x")
    worker.send(worker.run("hugehugehuge", request=request, allow_paths=True).to_line())
    run = worker.until("finished")[-1].run
    assert run.state == "failed"
    assert "needs 65.53 GB of memory" in str(run.error)
    assert "@layers=" in str(run.error), "the largest part that fits is named"


def test_a_path_is_a_model_only_where_it_may_be(worker: Worker, tmp_path: Path) -> None:
    worker.send(worker.run("pathpathpath", request=ask(model=str(tmp_path))).to_line())
    assert "There is no model" in str(worker.until("finished")[-1].run.error)
    worker.send(worker.run("pathpathpat2", request=ask(model=str(tmp_path)), allow_paths=True).to_line())
    assert "config.json" in str(worker.until("finished")[-1].run.error)


def test_a_fetch_says_when_it_is_done(worker: Worker) -> None:
    worker.send(FetchJob(id="fetchfetchfe", model=MODEL).to_line())
    assert worker.until("finished")[-1].error is None
    worker.send(FetchJob(id="fetchfetchf2", model="nothing").to_line())
    assert "There is no model nothing" in str(worker.until("finished")[-1].error)


def test_the_end_of_its_input_ends_it_in_the_middle_of_a_run() -> None:
    worker = Worker()
    worker.send(worker.run("longlonglong", request=ask_long()).to_line())
    worker.until("stepped")
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    wait_until(lambda: gone(worker.process.pid), 2.0, "the worker's end")
    worker.process.wait()


def test_shutdown_ends_it(worker: Worker) -> None:
    """The last test of this file that uses the shared worker."""
    worker.send(worker.run("longlonglon3", request=ask_long()).to_line())
    worker.until("stepped")
    worker.send(Shutdown().to_line())
    wait_until(lambda: gone(worker.process.pid), 2.0, "the worker's end")


def test_nothing_but_the_protocol_reaches_its_output() -> None:
    """What Python prints and what a child process prints goes to stderr; a child finds no commands to eat."""
    script = (
        "import os, subprocess\n"
        "from engine.worker import take_standard_streams\n"
        "source, out = take_standard_streams()\n"
        "print('from python', flush=True)\n"
        "os.write(1, b'from C\\n')\n"
        "subprocess.run(['cat'], check=True)\n"
        "out.write(source.readline())\n"
        "out.flush()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=b"a command\n", capture_output=True, timeout=60)
    assert done.stdout == b"a command\n"
    assert done.stderr.split(b"\n")[:2] == [b"from python", b"from C"]
