"""What can happen to the engine's process, done to a real one: killed, stopped, out of memory, orphaned, missing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
from records import said
from service import START_S, ask, ask_long, gone, new_store, start_broker, wait_for_steps, wait_until

from engine import settings
from engine.broker import Broker
from engine.errors import LabError
from engine.protocol import Finished, RunJob
from engine.store import Store
from engine.supervisor import Director, Limits, Supervisor, cause_of_death
from engine.worker_process import Ended, Heard, WorkerProcess

END_S = 60.0
# A stopped worker is given up soon, a merely slow one is not: this machine may be busy with other tests.
LIMITS = Limits(cancel_s=1.0, silence_s=0.3, answer_s=6.0, backoff_s=0.05)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the signals of this test are POSIX's")


def the_next_run_works(broker: Broker) -> None:
    assert broker.wait_for(broker.submit(ask(), "next"), START_S).state == "done"


# ---- killed, stopped, out of memory --------------------------------------------------------------


def test_a_killed_worker_fails_its_run_and_the_next_one_works(broker: Broker, store: Store) -> None:
    run_id = broker.submit(ask_long(), "a")
    waiting = broker.submit(ask(), "b")
    wait_for_steps(broker, run_id, 3)
    pid = broker.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    run = broker.wait_for(run_id, END_S)
    assert run.state == "failed"
    assert str(run.error).startswith("The engine's process was killed (signal 9), most likely because the machine ran")
    assert len(run.steps) >= 3  # what was measured is kept
    assert run.output.token_ids == [step.token_ids[0] for step in run.steps]
    assert store.get(run_id) == run
    assert broker.wait_for(waiting, START_S).state == "done"
    assert broker.worker_pid != pid


@pytest.mark.parametrize(
    ("returncode", "sentence"),
    [
        (-signal.SIGKILL, "was killed (signal 9), most likely because the machine ran out of memory"),
        (-signal.SIGSEGV, "crashed (signal 11); it was restarted"),
        (-signal.SIGABRT, "crashed (signal 6); it was restarted"),
        (3, "ended by itself (exit code 3); it was restarted"),
    ],
)
def test_the_cause_of_death_is_said_as_far_as_it_shows(broker: Broker, returncode: int, sentence: str) -> None:
    process = broker._supervisor._process
    assert process is not None
    assert sentence in str(cause_of_death(Ended(process, returncode, "")))


def test_a_worker_killed_while_idle_is_replaced(broker: Broker) -> None:
    wait_until(lambda: broker.machine().worker == "ready", START_S, "ready")
    pid = broker.worker_pid or 0
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: broker.worker_pid not in (pid, None), END_S, "another worker")
    the_next_run_works(broker)


def test_a_stopped_worker_is_noticed(broker: Broker) -> None:
    """It sends nothing and answers nothing: after a while it is asked, and then replaced."""
    run_id = broker.submit(ask_long(), "a")
    wait_for_steps(broker, run_id)
    pid = broker.worker_pid or 0
    os.kill(pid, signal.SIGSTOP)
    run = broker.wait_for(run_id, END_S)
    assert run.state == "failed"
    assert str(run.error) == "The engine stopped answering and was restarted; press Run again."
    assert gone(pid)
    the_next_run_works(broker)


def test_a_stopped_worker_can_be_cancelled(broker: Broker) -> None:
    run_id = broker.submit(ask_long(), "a")
    wait_for_steps(broker, run_id)
    pid = broker.worker_pid or 0
    os.kill(pid, signal.SIGSTOP)
    asked = time.monotonic()
    broker.cancel(run_id, "a")
    run = broker.wait_for(run_id, END_S)
    assert time.monotonic() - asked < LIMITS.silence_s + LIMITS.answer_s  # not because of its silence
    assert (run.state, run.error) == ("cancelled", None)
    assert run.steps
    assert gone(pid)
    the_next_run_works(broker)


def test_a_slow_step_is_not_taken_for_a_dead_worker(broker: Broker) -> None:
    """A prefill of many long prompts is silent for longer than a worker may be; its reading thread answers."""
    run = broker.wait_for(broker.submit(ask(prompt="x" * 2000, batch=6, max_new_tokens=1), "a"), 240)
    assert run.state == "done", run.error
    assert run.steps[0].time_ns / 1e9 > LIMITS.silence_s


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit another process's memory")
def test_out_of_memory_fails_the_run_and_spares_the_worker(broker: Broker) -> None:
    the_next_run_works(broker)
    pid = broker.worker_pid or 0
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    unlimited = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 50_000_000, unlimited[1]))
    run = broker.wait_for(broker.submit(ask(batch=100, max_new_tokens=1000), "a"), END_S)
    resource.prlimit(pid, resource.RLIMIT_AS, unlimited)
    assert run.state == "failed"
    assert str(run.error).startswith("There was not enough memory")
    the_next_run_works(broker)
    assert broker.worker_pid == pid


# ---- ends ----------------------------------------------------------------------------------------


def test_stop_takes_the_worker_along_and_keeps_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_THREADS", "1")
    store = new_store(tmp_path)
    broker = start_broker(store)
    running, waiting = broker.submit(ask_long(), "a"), broker.submit(ask(), "b")
    wait_for_steps(broker, running)
    pid, asked = broker.worker_pid or 0, time.monotonic()
    broker.stop()
    assert time.monotonic() - asked < 2.0
    assert gone(pid)
    kept = [store.get(run_id) for run_id in (running, waiting)]
    assert [(run.state, str(run.error)) for run in kept if run] == [
        ("failed", "The lab was stopped before this run ended; press Run again."),
        ("failed", "The lab was stopped before this run began; press Run again."),
    ]
    assert broker.machine().worker == "off"


PARENT = """
import sys, time
from pathlib import Path
from engine.broker import Broker
from service import ask_long, new_store, start_broker, wait_for_steps
if sys.argv[2] == "running":
    broker = start_broker(new_store(Path(sys.argv[1])))
    wait_for_steps(broker, broker.submit(ask_long(), "a"))
else:
    broker = Broker(new_store(Path(sys.argv[1])))
    broker.start()
    while broker.worker_pid is None:
        time.sleep(0.01)
print(broker.worker_pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux sends a signal when the parent dies")
@pytest.mark.parametrize("worker", ["running", "stopped"])
def test_the_worker_dies_with_its_server(tmp_path: Path, worker: str) -> None:
    """The server is killed, so nobody can tell the worker: not in the middle of a run, nor one that is stopped."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), worker],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "ROOFLINE_LAB_THREADS": "1"},
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    if worker == "stopped":
        # Its second thread starts once the death signal is arranged.
        wait_until(lambda: "Threads:\t1\n" not in Path(f"/proc/{pid}/status").read_text(), END_S, "a second thread")
        os.kill(pid, signal.SIGSTOP)
    assert not gone(pid)
    parent.kill()
    wait_until(lambda: gone(pid), 2.0, "the worker's end")
    parent.wait()


# ---- an engine that cannot work ------------------------------------------------------------------


def fake_torch(folder: Path, source: str) -> str:
    """A PYTHONPATH whose torch does what the source says."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(source)
    return str(folder)


def test_without_torch_one_can_look_but_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", fake_torch(tmp_path, "raise ModuleNotFoundError(\"No module named 'torch'\")"))
    with Broker(new_store(tmp_path), limits=LIMITS) as broker:
        run_id = broker.submit(ask(), "a")
        run = broker.wait_for(run_id, START_S)
        sentence = "The engine cannot run here (No module named 'torch'): install torch to measure"
        assert run.state == "failed"
        assert str(run.error).startswith(sentence)
        assert (broker.machine().worker, str(broker.machine().reason)) == ("unusable", str(run.error))
        with pytest.raises(LabError) as error:
            broker.submit(ask(), "a")
        assert said(error.value).startswith(sentence)
        assert broker.snapshot(run_id).state == "failed"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROOFLINE_LAB_THREADS", "many"),
        ("ROOFLINE_LAB_THREADS", "0"),
        ("ROOFLINE_LAB_THREADS", str(settings.MOST_THREADS_EACH * (os.cpu_count() or 1) + 1)),
        ("ROOFLINE_LAB_THREADS", "9" * 30),
        ("ROOFLINE_LAB_KERNELS", "nonsense"),
    ],
)
def test_settings_that_cannot_be_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with Broker(new_store(tmp_path), limits=LIMITS) as broker:
        run = broker.wait_for(broker.submit(ask(), "a"), START_S)
        assert str(run.error).startswith(f"The engine does not start ({name} is {value}; it ")
    assert "Traceback" not in capfd.readouterr().err


def test_one_that_is_about_to_die_takes_no_job() -> None:
    """It was killed for a run that would not end, and that run's end came all the same, just before its own."""
    jobs = iter([RunJob.model_construct(id="first"), RunJob.model_construct(id="second")])
    director = Mock(spec=Director)
    director.next_job.side_effect = lambda _devices: next(jobs)
    supervisor = Supervisor(director, eager=False)
    process = supervisor._process = Mock(spec=WorkerProcess)
    supervisor.state = "ready"
    supervisor._give_job()
    supervisor._kill("cancel")
    supervisor._hear(Heard(process, Finished(id="first")))
    supervisor._give_job()
    assert [call.args[0].id for call in process.send.call_args_list] == ["first"]
    supervisor._bury(Ended(process, -9, ""))
    director.lost.assert_not_called()


def test_a_worker_that_dies_at_its_start_is_tried_again_ever_more_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start is counted in a file; after three the run that waits is told, and trying goes on."""
    starts = tmp_path / "starts"
    source = f"import os, sys, time\nopen({str(starts)!r}, 'a').write(f'{{time.time()}}\\n')\n"
    source += "print('cannot load libgpu.so', file=sys.stderr, flush=True)\nos._exit(3)\n"
    monkeypatch.setenv("PYTHONPATH", fake_torch(tmp_path, source))
    with Broker(new_store(tmp_path), limits=Limits(backoff_s=0.4, longest_backoff_s=1.0)) as broker:
        run = broker.wait_for(broker.submit(ask(), "a"), START_S)
        assert str(run.error) == "The engine does not start (cannot load libgpu.so)."
        assert broker.machine().worker == "restarting"
        wait_until(lambda: len(starts.read_text().splitlines()) >= 5, END_S, "five starts")
        moments = [float(line) for line in starts.read_text().splitlines()]
        pauses = [later - earlier for earlier, later in pairwise(moments)]
        assert pauses[0] >= 0.4
        assert pauses[1] >= 0.8
        assert pauses[3] >= 1.0


def test_a_worker_that_hangs_at_its_start_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", fake_torch(tmp_path, "import time\ntime.sleep(600)\n"))
    limits = Limits(start_s=1.0, hopeless_starts=1)
    with Broker(new_store(tmp_path), limits=limits) as broker:
        run = broker.wait_for(broker.submit(ask(), "a"), START_S)
        assert "took longer than 1 s to start" in str(run.error)


# ---- a store that cannot be written --------------------------------------------------------------


def test_a_record_that_cannot_be_saved_stays_and_is_saved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.saving.RETRY_S", 0.2)
    monkeypatch.setenv("PYTHONPATH", fake_torch(tmp_path, "raise ModuleNotFoundError('no torch')"))
    (tmp_path / "folder").write_text("a file in the way")
    store = new_store(tmp_path / "folder")
    with Broker(store, limits=LIMITS) as broker:
        run_id = broker.submit(ask(), "a")
        run = broker.wait_for(run_id, START_S)
        notice = broker.snapshot(run_id).notice
        assert notice is not None
        assert "cannot be written" in str(notice)
        assert '"notice":{' in broker.events(run_id)[-1]
        assert broker.machine().notice == notice
        with pytest.raises(LabError):
            store.get(run_id)
        (tmp_path / "folder").unlink()
        wait_until(lambda: broker.snapshot(run_id).notice is None, END_S, "the record's saving")
        assert store.get(run_id) == run
        assert broker.machine().notice is None
