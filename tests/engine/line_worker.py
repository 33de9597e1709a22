"""The engine's process for the tests that speak to it line by line; the fixture `worker` is one a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from queue import Queue
from typing import Any

from service import ask, made_up_ceilings

from engine.ceilings import DeviceFacts
from engine.protocol import RunJob, read_event

END_S = 60.0


class Worker:
    """A worker and what it has said so far."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine.worker"],
            env={**os.environ, "ROOFLINE_LAB_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.lines: Queue[bytes] = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        # A pipe that nobody empties would stop the worker once it is full.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()  # type: ignore[union-attr]
        ready = json.loads(self.lines.get(timeout=120))
        assert ready["event"] == "ready"
        self.device = DeviceFacts.model_validate(ready["devices"][0])

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def send(self, *lines: bytes) -> None:
        """Write lines to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(lines))
        self.process.stdin.flush()

    def until(self, event: str) -> list[Any]:
        """Its events up to the next of this kind."""
        events: list[Any] = []
        while not events or events[-1].event != event:
            events.append(read_event(self.lines.get(timeout=END_S)))
        return events

    def run(self, job_id: str, **changes: Any) -> RunJob:
        """A job for a short run, unless changes say otherwise."""
        job = {"id": job_id, "created_at": "2026-01-02T03:04:05+00:00", "request": ask()}
        return RunJob.model_validate({**job, "ceilings": made_up_ceilings(self.device), **changes})
