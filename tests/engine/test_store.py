"""The store: what is kept is kept whole and unchanged, and every way to fail is one sentence."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from records import ceilings, facts, run, said

from engine import recorded
from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.record import Run
from engine.store import Store, is_run_id, open_store, shipped


@pytest.fixture
def store(database_url: str) -> Store:
    return open_store(database_url)


# ---- both databases ------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was(store: Store) -> None:
    kept = run()
    store.put(kept)
    assert store.get(kept.id) == kept
    assert json.loads(store.get(kept.id).to_json()) == json.loads(kept.to_json())  # type: ignore[union-attr]


def test_a_record_never_changes(store: Store) -> None:
    kept = run()
    store.put(kept)
    store.put(kept)  # the same again is no change
    other = kept.model_copy(update={"state": "failed"})
    with pytest.raises(LabError, match="a record never changes"):
        store.put(other)
    assert store.get(kept.id) == kept


def test_lists_show_the_newest_first(store: Store) -> None:
    moments = ["2026-01-02T03:04:05+00:00", "2026-01-02T03:04:07+00:00", "2026-01-02T03:04:06+00:00"]
    runs = [run().model_copy(update={"created_at": moment}) for moment in moments]
    other = run()
    other = other.model_copy(update={"request": other.request.model_copy(update={"model": "another"})})
    for each in (*runs, other):
        store.put(each)
    rows = [row for row in store.list(10, model="tiny") if not row.shipped]
    assert [row.id for row in rows] == [runs[1].id, runs[2].id, runs[0].id]
    assert (rows[0].output_tokens, rows[0].prompt_tokens, rows[0].tpot_p50_ms) == (4, 4, 25.0)
    assert len(store.list(2)) == 2


def test_ceilings_are_found_by_what_they_hold_for(store: Store) -> None:
    first, second = ceilings(), ceilings(id="ceilings-2")
    store.put_ceilings(first)
    key = Ceilings.key(first.device)
    assert store.ceilings(key) == first
    store.put_ceilings(second)
    assert store.ceilings(key) == second
    assert store.ceilings(Ceilings.key(facts(threads=1))) is None
    assert store.ceilings(Ceilings.key(facts(torch_version="2.9"))) is None


def test_many_writers_at_once_in_several_processes(database_url: str) -> None:
    """Three processes create the tables and write at the same moment; nothing is lost and nobody fails."""
    script = (
        "import sys\n"
        "from records import run\n"
        "from engine.store import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "print('up', flush=True)\n"
        "sys.stdin.readline()\n"
        "for _ in range(8):\n"
        "    store.put(run())\n"
        "    store.list(5)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, database_url],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, outcomes
    assert len([row for row in open_store(database_url).list(100) if not row.shipped]) == 24


def test_the_same_id_from_two_threads_is_written_once(store: Store) -> None:
    kept = run()
    versions = [kept.model_copy(update={"package_version": f"0.{number}"}) for number in range(6)]
    start = threading.Barrier(len(versions))

    def put(version: Run) -> bool:
        start.wait()
        try:
            store.put(version)
        except LabError:
            return False
        return True

    with ThreadPoolExecutor(len(versions)) as pool:
        written = list(pool.map(put, versions))
    assert sum(written) == 1
    assert store.get(kept.id) == versions[written.index(True)]


# ---- ids and shipped runs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "x" * 11,
        "x" * 13,
        "../../etc/pa",
        "a' OR '1'='1",
        "abcdefghijk\n",
        "abcdefghijkl\n",
        "abcdefghij\x00k",
        "abcdefghijk\n\n",
        "ａｂｃｄｅｆｇｈｉｊｋｌ",
        "x" * 1_000_000,
    ],
)
def test_what_cannot_be_an_id_is_no_run(hostile: str) -> None:
    unreachable = open_store("sqlite:////dev/null/lab.db")
    assert not is_run_id(hostile)
    assert unreachable.get(hostile) is None


def test_shipped_runs_need_no_database_and_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = run()
    monkeypatch.setattr(recorded, "runs", lambda: {kept.id: kept})
    unreachable = open_store("sqlite:////dev/null/lab.db")
    assert unreachable.get(kept.id) == kept
    assert [(row.id, row.shipped) for row in shipped()] == [(kept.id, True)]
    store = open_store(f"sqlite:///{tmp_path}/lab.db")
    store.put(kept)
    assert [row.shipped for row in store.list(10)] == [True]
    with pytest.raises(LabError, match="never changes"):
        store.put(kept.model_copy(update={"state": "failed"}))


def test_every_shipped_run_is_a_record() -> None:
    for run_id, each in recorded.runs().items():
        assert run_id == each.id
        assert each.state == "done"


# ---- SQLite's ways to fail -----------------------------------------------------------------------


def test_the_folder_is_made(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/not/yet/there/lab.db")
    store.check_writable()
    assert store.ceilings("self-check") is None


def test_an_unwritable_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = open_store(f"sqlite:///{tmp_path}/file/lab.db")
    for use in (lambda: store.put(run()), lambda: store.list(5), store.check_writable):
        with pytest.raises(LabError) as error:
            use()
        assert said(error.value).startswith(f"The store of runs ({tmp_path}/file/lab.db) cannot be written (")


def test_a_read_only_store_can_still_be_read(tmp_path: Path) -> None:
    kept, path = run(), tmp_path / "lab.db"
    store = open_store(f"sqlite:///{path}")
    store.put(kept)
    store.close()
    # As root no permission binds, so the test asks SQLite itself for a connection that cannot write.
    read_only = open_store(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert read_only.get(kept.id) == kept
    with pytest.raises(LabError) as error:
        read_only.put(run())
    assert "cannot be written" in said(error.value)


NO_DATABASES = [b"this is no database, but long enough" * 100, b"SQLite format 3\x00" + b"\xff" * 9000]


@pytest.mark.parametrize("content", NO_DATABASES)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lab.db"
    path.write_bytes(content)
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(LabError) as error:
        store.put(run())
    assert said(error.value).startswith(f"{path} is not a readable store of runs")
    assert path.read_bytes() == content


def test_a_damaged_record_is_said(tmp_path: Path) -> None:
    path, kept = tmp_path / "lab.db", run()
    store = open_store(f"sqlite:///{path}")
    store.put(kept)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET document = '{\"schema\": 9}'")
    with pytest.raises(LabError, match="kept by another version"):
        store.get(kept.id)


def test_what_cannot_be_read_keeps_no_others_from_being_shown(tmp_path: Path) -> None:
    path, here = tmp_path / "lab.db", ceilings()
    store = open_store(f"sqlite:///{path}")
    first, second = run(), run("another1run2")
    store.put(first)
    store.put(second)
    store.put_ceilings(here)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET row = '{}' WHERE id = ?", (first.id,))
        connection.execute("UPDATE ceilings SET document = 'nonsense'")
    assert [row.id for row in store.list(10) if not row.shipped] == [second.id]
    assert store.ceilings(Ceilings.key(here.device)) is None
    store.put_ceilings(here)
    assert store.ceilings(Ceilings.key(here.device)) == here


def test_a_database_held_by_another_program_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.database.BUSY_TIMEOUT_S", 0.2)
    path = tmp_path / "lab.db"
    store = open_store(f"sqlite:///{path}")
    store.put(run())
    with sqlite3.connect(path) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LabError, match="held by another program"):
            store.put(run())
        holder.rollback()
    store.put(run())


def test_opening_waits_for_another_that_is_just_creating_the_store(tmp_path: Path) -> None:
    """SQLite refuses the switch to WAL at once, whatever the timeout, while another program writes the new file."""
    path = tmp_path / "lab.db"
    other = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE something (a)")
    release = threading.Timer(0.3, lambda: other.execute("COMMIT"))
    release.start()
    open_store(f"sqlite:///{path}").put(run())
    release.join()


def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """On a file system of 256 KB: what fits is kept, what does not is refused whole, and room makes it work again."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 60_000)
    store = open_store(f"sqlite:///{small_disk}/lab.db")
    kept: list[Run] = []
    refused = (run() for _ in range(200))

    def fill() -> None:
        for each in refused:
            store.put(each)
            kept.append(each)

    with pytest.raises(LabError) as error:
        fill()
    assert said(error.value).startswith(f"The disk that holds the store of runs ({small_disk}/lab.db) is full")
    assert kept
    assert {row.id for row in store.list(500) if not row.shipped} == {each.id for each in kept}
    ballast.unlink()
    another = next(refused)
    store.put(another)
    assert store.get(another.id) == another


# ---- URLs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "is not the URL of a database"),
        ("nonsense", "is not the URL of a database"),
        ("mysql://user:pw@host/db", "mysql is neither"),
        ("sqlite://", "would be lost with each process"),
        ("sqlite:///:memory:", "would be lost with each process"),
    ],
)
def test_a_url_that_is_no_store_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        open_store(url)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_an_unreachable_server_is_said_without_its_password(scheme: str) -> None:
    store = open_store(f"{scheme}://me:hunter2@127.0.0.1:9/lab")
    with pytest.raises(LabError) as error:
        store.list(5)
    assert "cannot be reached" in said(error.value)
    assert "hunter2" not in said(error.value)


def test_the_settings_name_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_STORE", f"sqlite:///{tmp_path}/elsewhere.db")
    open_store().put(run())
    assert (tmp_path / "elsewhere.db").exists()
