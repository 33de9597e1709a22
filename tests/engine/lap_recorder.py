"""Laps that keep their order and no time."""

from __future__ import annotations

from engine.laps import OpKey


class Recorder:
    """What a dry step says it has done, in the order in which it did it."""

    def __init__(self) -> None:
        self.keys: list[OpKey] = []

    def start(self) -> None:
        self.keys = []

    def lap(self, key: OpKey) -> None:
        self.keys.append(key)

    def totals(self) -> dict[OpKey, tuple[float, int]]:
        return {}
