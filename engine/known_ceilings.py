"""The ceilings that are known of this machine, from this process's memory or from the store."""

from __future__ import annotations

import math
import time

from engine.ceilings import Ceilings, DeviceFacts
from engine.errors import LabError
from engine.store import Store

LOOK_AGAIN_S = 10.0


class KnownCeilings:
    """Ceilings by what they hold for. Read from the store once; kept here when they are measured anew."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Ceilings] = {}
        self._looked_at = -math.inf

    def keep(self, ceilings: Ceilings) -> None:
        """Remember what was measured just now."""
        self._known[Ceilings.key(ceilings.device)] = ceilings

    def of(self, device: DeviceFacts) -> Ceilings | None:
        """What is known of a device; looks into the store where nothing is.

        Raises:
            LabError: the store cannot be read.
        """
        key = Ceilings.key(device)
        if key not in self._known:
            found = self._store.ceilings(key)
            if found is not None:
                self._known[key] = found
        return self._known.get(key)

    def shown_of(self, device: DeviceFacts) -> Ceilings | None:
        """The same for pages, which ask often: a store that cannot be reached is tried now and then only."""
        key = Ceilings.key(device)
        if key not in self._known and time.monotonic() > self._looked_at + LOOK_AGAIN_S:
            self._looked_at = time.monotonic()
            try:
                return self.of(device)
            except LabError:
                return None
        return self._known.get(key)


def named(device: str | None, devices: list[DeviceFacts]) -> DeviceFacts | None:
    """The facts of the device a request names ("cuda:1"); of the worker's own where it names none."""
    kind = device.partition(":")[0] if device else None
    return next((each for each in devices if kind in (None, each.kind)), None)
