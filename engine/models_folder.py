"""The folder that the web app's own models come from (ROOFLINE_LAB_MODELS): what lies in it and can be read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from engine import catalogue, settings, spec
from engine.errors import LabError


def listed() -> dict[str, Path]:
    """Subfolders of ROOFLINE_LAB_MODELS with a config.json, by name; the lab's own names stay its own."""
    return {path.name: path for path in sorted(_subfolders()) if path.name not in catalogue.OWN}


def _subfolders() -> Iterator[Path]:
    parent = settings.models_folder()
    if parent is None or not is_folder(parent):
        return
    for path in parent.iterdir():
        if (path / "config.json").is_file():
            yield path


def readable(folder: Path) -> spec.Spec | None:
    """The Spec of a listed folder, or None where its config is of no use here."""
    try:
        facts = (folder / "config.json").stat()
        return _spec_of(folder, facts.st_mtime_ns, facts.st_size)
    except (OSError, LabError):
        return None


@lru_cache(maxsize=64)
def _spec_of(folder: Path, mtime_ns: int, size: int) -> spec.Spec:
    return spec.from_folder(folder)


def is_folder(path: Path) -> bool:
    """Whether there is a folder of that name; a name no file system takes is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name no file system takes: too long, or with a NUL
        return False
