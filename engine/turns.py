"""Whose turn it is: a bounded queue that serves its owners in rounds.

Every owner with something waiting gets one item a round, in the order they joined it, so that nobody
waits longer because someone else asks often. Knows nothing of runs or workers; not thread-safe by itself.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """What can wait here."""

    id: str
    owner: str


Item = TypeVar("Item", bound=Queued)


class Turns(Generic[Item]):
    """A round-robin queue over owners.

    An owner who was just served and asks again joins at the end of the round: with one item an owner
    this is first come, first served.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(items) for items in self._waiting.values())

    def __iter__(self) -> Iterator[Item]:
        """The items in the order they will be served if nobody joins."""
        rounds = max((len(items) for items in self._waiting.values()), default=0)
        for turn in range(rounds):
            for items in self._waiting.values():
                if turn < len(items):
                    yield items[turn]

    def put(self, item: Item) -> None:
        """Let `item` wait for its owner's next turn."""
        self._waiting.setdefault(item.owner, deque()).append(item)

    def take(self) -> Item | None:
        """The next item, or None when nothing waits; its owner goes to the end of the round."""
        if not self._waiting:
            return None
        owner, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            self._waiting[owner] = items
        return item

    def remove(self, item_id: str) -> Item | None:
        """Take the item with this id out of the queue, or None when it does not wait here."""
        for owner, items in self._waiting.items():
            for item in items:
                if item.id == item_id:
                    items.remove(item)
                    if not items:
                        del self._waiting[owner]
                    return item
        return None
