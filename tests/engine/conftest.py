"""Real databases and a real full disk for the tests of the store; a real worker for those that speak to one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from line_worker import Worker
from service import new_store, start_broker

from engine.broker import Broker
from engine.store import Store

POSTGRES_FOLDERS = [Path("/usr/lib/postgresql"), Path("/opt/homebrew/opt"), Path("/usr/pgsql")]


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of the kind the test is parametrised with."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/lab.db"
    server: str = request.getfixturevalue("postgres_server")
    name = f"lab_{uuid.uuid4().hex}"
    import psycopg

    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
    return f"{server}/{name}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that asks for a database runs on both kinds."""
    if "database_url" in metafunc.fixturenames:
        metafunc.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of its own on a free port of this machine, gone after the tests."""
    binaries = _postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's server (initdb, postgres) is not installed on this machine")
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed: pip install 'roofline-lab[postgres]'")
    # PostgreSQL refuses to run as root, and pytest's own folders are closed to other users.
    as_user = {"user": "nobody"} if os.geteuid() == 0 else {}
    folder = Path("/tmp") / f"lab-pg-{uuid.uuid4().hex[:8]}" if as_user else tmp_path_factory.mktemp("pg")
    folder.mkdir(exist_ok=True)
    if as_user:
        shutil.chown(folder, "nobody")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **as_user}
    initdb = [binaries / "initdb", "-D", folder / "data", "-U", "lab", "-A", "trust", "--no-sync"]
    subprocess.run(initdb, check=True, **quiet)  # type: ignore[call-overload]
    settings = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off"]
    command = [binaries / "postgres", "-D", folder / "data", *(part for each in settings for part in ("-c", each))]
    server = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    try:
        url = f"postgresql://lab@127.0.0.1:{port}"
        _wait_for(url)
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # SIGTERM would wait for the stores' pooled connections
        server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_binaries() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return Path(on_path).resolve().parent
    found = sorted(path for folder in POSTGRES_FOLDERS for path in folder.glob("*/bin") if (path / "initdb").exists())
    return found[-1] if found else None


def _wait_for(server: str) -> None:
    import psycopg

    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(f"{server}/postgres", connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "lab-test", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("this system does not let the test mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """An engine's process, one for a file of tests."""
    started = Worker()
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An empty store, one for a file of tests."""
    return new_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, store: Store) -> Iterator[Broker]:
    """A broker with a real engine of one thread, within the file's own LIMITS where it has some."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOFLINE_LAB_THREADS", "1")
        started = start_broker(store, limits=getattr(request.module, "LIMITS", None))
        yield started
        started.stop()
