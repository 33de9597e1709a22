"""The engine's process as its parent sees it: start it, send it commands, hear its events, end it.

Two daemon threads carry the lines, so that neither a full pipe nor a stopped process can ever block
the thread that decides. Knows nothing of queues, runs or the store.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from engine import settings
from engine.protocol import Command, Event, Shutdown, read_event

COMMAND = (sys.executable, "-m", "engine.worker")
STDERR_LINES = 40
GRACE_S = 0.7


@dataclass(frozen=True, slots=True)
class Heard:
    """One event, and which process it came from: a killed one's last lines may still arrive."""

    process: WorkerProcess
    event: Event


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is gone. `returncode` is negative for the signal that ended it."""

    process: WorkerProcess
    returncode: int
    last_words: str


class WorkerProcess:
    """A started worker.

    It must be made by a thread that lives as long as it should: Linux sends the worker's death signal
    when the thread that forked it ends (prctl(2), PR_SET_PDEATHSIG), not when the process does.
    """

    def __init__(self, hear: Callable[[Heard | Ended], None], command: Sequence[str] = COMMAND) -> None:
        threads = str(settings.threads())
        settings.kernels()  # refused here in one sentence, and not by a process that cannot start
        self._hear = hear
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C in the terminal is the server's to handle; what it starts dies with it
        )
        self._readers = [
            threading.Thread(target=target, name=f"worker {name}", daemon=True)
            for name, target in (("events", self._read), ("stderr", self._read_stderr))
        ]
        for thread in self._readers:
            thread.start()
        threading.Thread(target=self._write, name="worker commands", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def send(self, command: Command) -> None:
        """Queue a command; returns at once. A dead worker is reported by `Ended`, not here."""
        self._commands.put(command.to_line())

    def kill(self) -> None:
        """End it and all it started, now. Works on a stopped process too."""
        if hasattr(os, "killpg"):
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self._process.kill()
        else:
            self._process.kill()

    def stop(self) -> None:
        """Ask it to end, wait a moment, then kill it; returns when it is gone (well within 2 s)."""
        self.send(Shutdown())
        self._commands.put(None)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            while (line := self._commands.get()) is not None:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            self._process.stdin.close()
        except OSError:
            pass  # the pipe broke: the reading thread reports the end

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._hear(Heard(self, read_event(line)))
            except ValidationError as error:
                self._stderr.append(f"unreadable line from the engine: {error.errors()[0]['msg']}")
                self.kill()
                break
        returncode = self._process.wait()
        self._readers[1].join(1.0)
        self._commands.put(None)
        self._hear(Ended(self, returncode, "\n".join(self._stderr)))

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            line = raw.decode(errors="replace").rstrip()
            self._stderr.append(line)
            print(line, file=sys.stderr)
