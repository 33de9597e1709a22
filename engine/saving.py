"""Writing records to the store without making anyone wait, and not losing those that could not be written.

One thread writes. What fails stays in memory, is said so, and is tried again until it works.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from engine.ceilings import Ceilings
from engine.errors import N_, LabError, Sentence
from engine.experiment_record import AnyRecord
from engine.record import Run

RETRY_S = 30.0
KEPT_UNSAVED = 100
DEFECT = N_("The run could not be saved ({kind}): a defect of the lab, described in its log.")


class Keeper(Protocol):
    """The part of a store that writes."""

    def put(self, run: Run) -> None: ...

    def put_ceilings(self, ceilings: Ceilings) -> None: ...

    def put_experiment(self, record: AnyRecord) -> None: ...


Saved = Callable[[Sentence | None], None]
"""Told None once the record is in the store, or else the sentence that says why it is not."""
What = Run | AnyRecord | Ceilings


class Saver:
    """A queue of records in front of a store."""

    def __init__(self, store: Keeper) -> None:
        self._store = store
        self._queue: queue.Queue[tuple[What, Saved] | None] = queue.Queue()
        self._unsaved: dict[str, tuple[Run | AnyRecord, Saved]] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the writing thread."""
        self._thread = threading.Thread(target=self._work, name="saver", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Write what is waiting, then end; gives up after `timeout_s`."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def save(self, what: What, saved: Saved) -> None:
        """Write `what` soon; `saved` is called from the writing thread, again when a later try works."""
        self._queue.put((what, saved))

    def _work(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=RETRY_S if self._unsaved else None)
            except queue.Empty:
                self._retry()
                continue
            if item is None:
                return
            what, saved = item
            error = self._put(what)
            if error is not None and not isinstance(what, Ceilings):
                self._unsaved[what.id] = (what, saved)
                if len(self._unsaved) > KEPT_UNSAVED:
                    del self._unsaved[next(iter(self._unsaved))]
            saved(error)

    def _retry(self) -> None:
        for run, saved in list(self._unsaved.values()):
            if self._put(run) is not None:
                return  # the same trouble as before: what is said of it still holds
            del self._unsaved[run.id]
            saved(None)

    def _put(self, what: What) -> Sentence | None:
        try:
            if isinstance(what, Run):
                self._store.put(what)
            elif isinstance(what, Ceilings):
                self._store.put_ceilings(what)
            else:
                self._store.put_experiment(what)
        except LabError as error:
            return error.sentence
        except Exception as error:
            traceback.print_exc()
            return Sentence(template=DEFECT, params={"kind": type(error).__name__})
        return None
