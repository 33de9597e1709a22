"""Typed reading of a config.json: every value that is missing, mistyped or absurd becomes one clear sentence.

Knows nothing of model families; it only answers "what whole number is under this key".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import LabError

# Far above anything built, far below what would make a page hang or an array overflow.
MAX_LAYERS = 1_000
MAX_SIZE = 100_000_000


class Fields:
    """A config mapping with typed getters. Each getter raises LabError naming the key and what it should be."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def with_defaults(self, defaults: Mapping[str, Any]) -> Fields:
        """The same with values for keys that are absent or null."""
        return Fields({**self.values, **{key: value for key, value in defaults.items() if not self.has(key)}})

    def has(self, key: str) -> bool:
        """Whether the key is there with a value other than null."""
        return self.values.get(key) is not None

    def size(self, key: str, *aliases: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """A whole number from 1 to `most`, under `key` or the first alias that is there."""
        found = next((name for name in (key, *aliases) if self.has(name)), None)
        if found is None:
            if default is None:
                raise LabError("The config has no {key}; it has to be a whole number of at least 1.", key=key)
            return default
        value = self.values[found]
        if isinstance(value, bool) or not isinstance(value, int):
            raise LabError(
                "The config's {key} is {value}; it has to be a whole number of at least 1.",
                key=found,
                value=_show(value),
            )
        if not 1 <= value <= most:
            raise LabError(
                "The config's {key} is {value}; it has to lie between 1 and {most}.",
                key=found,
                value=_show(value),
                most=most,
            )
        return value

    def count(self, key: str, *aliases: str, default: int = 0, most: int = MAX_SIZE) -> int:
        """A whole number from 0 to `most`, under `key` or the first alias that is there."""
        found = next((name for name in (key, *aliases) if self.has(name)), None)
        if found is None:
            return default
        is_zero = type(self.values[found]) is int and self.values[found] == 0
        return 0 if is_zero else self.size(found, most=most)

    def layers(self, key: str = "num_hidden_layers") -> int:
        """How many layers there are."""
        return self.size(key, most=MAX_LAYERS)

    def number(self, key: str, *, default: float) -> float:
        """A positive number, whole or not."""
        if not self.has(key):
            return default
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise LabError(
                "The config's {key} is {value}; it has to be a positive number.", key=key, value=_show(value)
            )
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """true or false."""
        if not self.has(key):
            return default
        value = self.values[key]
        if not isinstance(value, bool):
            raise LabError("The config's {key} is {value}; it has to be true or false.", key=key, value=_show(value))
        return value

    def text(self, key: str, *, default: str) -> str:
        """A string."""
        if not self.has(key):
            return default
        value = self.values[key]
        if not isinstance(value, str):
            raise LabError("The config's {key} is {value}; it has to be a string.", key=key, value=_show(value))
        return value

    def names(self, key: str) -> list[str] | None:
        """A list of strings, or None where the key is absent."""
        if not self.has(key):
            return None
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise LabError("The config's {key} is {value}; it has to be a list of names.", key=key, value=_show(value))
        return value

    def indices(self, key: str) -> list[int]:
        """A list of whole numbers; empty where the key is absent."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(
            isinstance(item, int) and not isinstance(item, bool) for item in value
        ):
            raise LabError(
                "The config's {key} is {value}; it has to be a list of whole numbers.", key=key, value=_show(value)
            )
        return value

    def is_list(self, key: str) -> bool:
        """Whether a list stands under the key."""
        return isinstance(self.values.get(key), list)

    def is_text(self, key: str) -> bool:
        """Whether a string stands under the key."""
        return isinstance(self.values.get(key), str)

    def part(self, key: str) -> Fields | None:
        """A nested object, or None where the key is absent."""
        if not self.has(key):
            return None
        value = self.values[key]
        if not isinstance(value, Mapping):
            raise LabError("The config's {key} is {value}; it has to be an object.", key=key, value=_show(value))
        return Fields(value)


def divisible(value: int, by: int, *, key: str, by_key: str) -> int:
    """`value // by`, refusing a remainder.

    Raises:
        LabError: `value` is not a multiple of `by`.
    """
    if value % by:
        raise LabError(
            "The config's {key} is {value}, which is not a multiple of its {by_key}, {by}.",
            key=key,
            value=value,
            by_key=by_key,
            by=by,
        )
    return value // by


def _show(value: object) -> str:
    """A value short enough for a sentence."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
