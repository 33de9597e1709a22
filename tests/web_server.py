"""The lab as its users start it: one server process on a free port, with a home of its own.

Measuring the machine takes a minute, so the ceilings of the first server that measured are kept beside
the demo model and handed to later ones; they hold for this device and software, or the engine measures anew.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import FileLock

from engine.ceilings import Ceilings
from engine.store import open_store

ROOT = Path(__file__).parent.parent
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Lab:
    """A running server."""

    port: int
    home: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET request."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def cpu_s(self) -> float:
        """CPU seconds the web process has used, its worker not included."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def worker(self) -> psutil.Process:
        """The engine's process."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if "engine.worker" in " ".join(child.cmdline()):
                return child
        raise AssertionError("the server has no worker")

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once the engine can take a run."""
        deadline = time.monotonic() + timeout_s
        while self.get("/api/ready")[0] != 200:
            assert time.monotonic() < deadline, "the engine was not ready in time"
            time.sleep(0.2)


def new_home(folder: Path, demo_home: Path) -> Path:
    """A home with the demo model in it, and the ceilings an earlier server measured, if any did."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("models", "vocabularies"):
        (folder / name).symlink_to(demo_home / name)
    measured = _measured(demo_home)
    if measured.exists():
        store = open_store(f"sqlite:///{folder / 'lab.db'}")
        store.put_ceilings(Ceilings.model_validate_json(measured.read_bytes()))
    return folder


def measured_once(demo_home: Path) -> None:
    """Measure this machine and the models' shapes, unless an earlier session has; the engine checks that they hold."""
    with FileLock(demo_home / "web_ceilings.lock"):
        if _measured(demo_home).exists() and real_run(demo_home).exists():
            return
        with tempfile.TemporaryDirectory() as folder:
            home = new_home(Path(folder) / "home", demo_home)
            for model in ("tiny-3.7m", "smollm2-135m"):
                command = [
                    sys.executable,
                    "-m",
                    "engine",
                    "run",
                    "--model",
                    model,
                    "--prompt",
                    "a",
                    "--max-new-tokens",
                    "2",
                    "--json",
                ]
                answer = subprocess.run(command, env=_environment(home), capture_output=True, check=True, timeout=600)
        real_run(demo_home).write_bytes(answer.stdout)
        _measured(demo_home).write_text(json.dumps(json.loads(answer.stdout)["ceilings"]))


def real_run(demo_home: Path) -> Path:
    """The record of a short run of the demo model on this machine; there once `measured_once` has been called."""
    return demo_home / "web_run.json"


def _measured(demo_home: Path) -> Path:
    return demo_home / "web_ceilings.json"


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"ROOFLINE_LAB_HOME": str(home), "ROOFLINE_LAB_THREADS": "1"}


@contextmanager
def serve(home: Path, *, cwd: Path = ROOT, **environment: str) -> Iterator[Lab]:
    """Start the server, yield it once it answers, and end it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "app.py"), "--server.port", str(port)]
    log = home / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=_environment(home) | environment, stdout=output, stderr=subprocess.STDOUT
        )
        lab = Lab(port, home, process)
        try:
            _wait_until_it_answers(lab, log)
            yield lab
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_it_answers(lab: Lab, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            if lab.get("/_stcore/health")[0] == 200:
                return
        except OSError:
            pass
        assert lab.process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
