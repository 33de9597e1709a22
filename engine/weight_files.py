"""A checkpoint's safetensors files: which they are, whether they are sound, what they hold, what they sum up to.

Reads headers and hashes, through the safetensors library; never unpickles, and never follows a name out of the
folder. Knows nothing of torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import Any

from safetensors import SafetensorError, safe_open

from engine import settings
from engine.errors import N_, LabError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as a file's header describes it. `dtype` in safetensors' names: F32, BF16, F16 ..."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def find(folder: Path) -> list[Path]:
    """The weight files of a folder, in order: model.safetensors, or the shards that its index names.

    Raises:
        LabError: none, only pickled ones, or an index that is not one.
    """
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _shards(folder)
    if any(next(folder.glob(pattern), None) for pattern in _PICKLED):
        raise LabError(
            "{folder} holds pickled weights, which could run a stranger's code and are never opened: "
            "convert them to safetensors.",
            folder=str(folder),
        )
    raise LabError("{folder} holds no {file} and no index of shards.", folder=str(folder), file=SINGLE)


def _shards(folder: Path) -> list[Path]:
    """The files an index names, all of which have to be there."""
    names = shard_names(folder / INDEX)
    for name in names:
        if not (folder / name).is_file():
            raise LabError("{folder} lacks the shard {name} that its index names.", folder=str(folder), name=name)
    return [folder / name for name in names]


def shard_names(path: Path) -> list[str]:
    """The files an index names. Only plain names count: an index must not reach outside its folder.

    Raises:
        LabError: it names something else, or is no index.
    """
    try:
        weight_map: Any = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LabError("{path} is not an index of shards; fetch or copy it again.", path=str(path)) from error
    for name in names:
        if not _is_plain(name):
            raise LabError(
                "{path} names the file {name}; only safetensors files of the same folder are read.",
                path=str(path),
                name=str(name)[:200],
            )
    if not names:
        raise LabError("{path} is not an index of shards; fetch or copy it again.", path=str(path))
    return names


def _is_plain(name: object) -> bool:
    """Whether it names a safetensors file of the same folder on every system."""
    return isinstance(name, str) and name.endswith(".safetensors") and name == PureWindowsPath(name).name


def inspect(files: Sequence[Path]) -> dict[str, Stored]:
    """Every tensor of the files by name, from their headers alone.

    Raises:
        LabError: a file that is cut short or corrupt, or a tensor that two of them hold.
    """
    found: dict[str, Stored] = {}
    for file in files:
        for name, stored in _header(file).items():
            if name in found:
                one, other = found[name].file.name, file.name
                raise LabError("Tensor {name} is both in {one} and in {other}.", name=name, one=one, other=other)
            found[name] = stored
    return found


def check(files: Sequence[Path]) -> None:
    """Let pass files whose headers can be read and agree with their lengths; looked at once for each change.

    Raises:
        LabError: as `inspect`.
    """
    _sound(tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=64)
def _sound(stamps: tuple[tuple[Path, int, int], ...]) -> None:
    inspect([file for file, _size, _mtime in stamps])


def _header(file: Path) -> dict[str, Stored]:
    try:
        with safe_open(file, framework="numpy") as opened:
            parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
            return {name: Stored(file, part.get_dtype(), tuple(part.get_shape())) for name, part in parts.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(file, str(error)) from error


# What the library says, without spaces and in small letters (its versions differ in these), and what that means.
_FAULTS = (
    ("headertoosmall", N_("{file} is damaged: it ends before its header; fetch or copy it again.")),
    ("headertoolarge", N_("{file} is damaged: its header claims to be larger than any is; fetch or copy it again.")),
    ("headerlength", N_("{file} is damaged: it ends within its header; fetch or copy it again.")),
    ("incomplete", N_("{file} is damaged: its length is not what its header says; fetch or copy it again.")),
    ("invalidoffset", N_("{file} is damaged: its header puts tensors where they cannot be; fetch or copy it again.")),
    ("invalidshape", N_("{file} is damaged: a tensor's shape and its bytes do not agree; fetch or copy it again.")),
    ("invalidinfo", N_("{file} is damaged: a tensor's shape and its bytes do not agree; fetch or copy it again.")),
    ("overflow", N_("{file} is damaged: a tensor's shape and its bytes do not agree; fetch or copy it again.")),
    ("header", N_("{file} is damaged: its header cannot be read; fetch or copy it again.")),
)


def _damaged(file: Path, said: str) -> LabError:
    squeezed = said.replace(" ", "").lower().removeprefix("errorwhiledeserializingheader:")
    template = next((template for sign, template in _FAULTS if sign in squeezed), None)
    if template is not None:
        return LabError(template, file=str(file))
    return LabError("{file} cannot be read ({reason}); fetch or copy it again.", file=str(file), reason=said[:200])


# --- sums -------------------------------------------------------------------------------------------


def combined_sha256(files: Sequence[Path]) -> str:
    """SHA-256 over the files' bytes, one file after the other. Kept in the lab's home by path, size and time."""
    key = json.dumps([[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files])
    return _remembered(key, tuple(files), settings.home() / "weight_hashes.json")


@lru_cache(maxsize=32)
def _remembered(key: str, files: tuple[Path, ...], memory: Path) -> str:
    known = _recall(memory)
    if key not in known:
        digest = hashlib.sha256()
        for file in files:
            with file.open("rb") as opened:
                while chunk := opened.read(_CHUNK_BYTES):
                    digest.update(chunk)
        known[key] = digest.hexdigest()
        _keep(memory, known)
    return known[key]


def _recall(memory: Path) -> dict[str, str]:
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
        return {str(key): str(value) for key, value in content.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _keep(memory: Path, known: dict[str, str]) -> None:
    """Write the sums whole or not at all; where the home cannot be written they are computed again next time."""
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=memory.parent, prefix=memory.name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(known, file)
            Path(name).replace(memory)
        except OSError:
            Path(name).unlink(missing_ok=True)
