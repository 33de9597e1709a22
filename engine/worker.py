"""The engine's process: `python -m engine.worker`. The only one of the lab that imports torch.

Commands come in on standard input, events go out on standard output, one JSON object a line; see
`engine.protocol`. One job at a time. A thread that reads commands ends the process at once when the
input closes, even in the middle of a step, so that no worker outlives the server that started it.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
from typing import BinaryIO, NoReturn

from pydantic import BaseModel, ValidationError

from engine.errors import N_, LabError, Sentence
from engine.protocol import Cancel, Command, Job, Ping, Pong, Shutdown, Unusable, read_command

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_INSTALLED = N_(
    "The engine cannot run here ({reason}): install torch to measure; what is recorded already can be looked at."
)


class Channel:
    """The way out: whole lines, whichever thread sends."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def send(self, message: BaseModel) -> None:
        """Write one event; the process ends when nobody reads any more."""
        line = message.model_dump_json(by_alias=True).encode() + b"\n"
        with self._lock:
            try:
                self._out.write(line)
                self._out.flush()
            except OSError:
                leave()


class Commands:
    """The way in: jobs in order, and what the reading thread answers by itself."""

    def __init__(self, source: BinaryIO, channel: Channel) -> None:
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._source = source
        self._channel = channel

    def listen(self) -> None:
        """Read commands until there are no more, then end the process."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()

    def cancelled(self, job_id: str) -> bool:
        """Whether this job was asked to end."""
        return job_id in self._cancelled

    def _listen(self) -> None:
        for line in self._source:
            try:
                self._obey(read_command(line))
            except ValidationError as error:
                print(f"engine.worker: not a command: {error}", file=sys.stderr)
        leave()

    def _obey(self, command: Command) -> None:
        if isinstance(command, Shutdown):
            leave()
        elif isinstance(command, Ping):
            self._channel.send(Pong())
        elif isinstance(command, Cancel):
            self._cancelled.add(command.id)
        else:
            self.jobs.put(command)


def leave() -> NoReturn:
    """End this process and what it started, without waiting for anything: a step may be computing."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def die_with_parent() -> None:
    """Ask Linux to kill this process when the thread that started it ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Keep the two pipes for the protocol alone.

    Whatever a library prints, in Python or in C, goes to standard error from now on; and what this process
    starts (pip, for a fetch) finds an empty input instead of the commands.
    """
    commands, events = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return commands, events


def main() -> None:
    """Serve jobs until the input closes."""
    die_with_parent()
    source, out = take_standard_streams()
    channel = Channel(out)
    commands = Commands(source, channel)
    commands.listen()
    try:
        # Torch comes in here and not above: from the first moment the process has to be able to end.
        from engine.workshop import Workshop

        workshop = Workshop(commands, channel.send)
    except ImportError as error:
        channel.send(Unusable(error=Sentence(template=NOT_INSTALLED, params={"reason": str(error)})))
        return
    except LabError as error:
        channel.send(Unusable(error=error.sentence))
        return
    workshop.serve()


if __name__ == "__main__":
    main()
