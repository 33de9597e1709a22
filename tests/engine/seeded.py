"""Seeding a wrong formula into a module for the time of one check, without touching its file.

The module's source is compiled with one piece replaced, and the code of its functions and methods is exchanged in
place, so that every other module that holds a reference to them sees the fault too.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType


@contextmanager
def seeded(module_name: str, right: str, wrong: str) -> Iterator[None]:
    """Run the block with `right` replaced by `wrong` in the module's source.

    Raises:
        AssertionError: `right` does not occur in the source (the table of faults is out of date).
    """
    module = importlib.import_module(module_name)
    source = inspect.getsource(module)
    assert right in source, f"{module_name} no longer contains {right!r}"
    faulty = ModuleType(module_name)
    faulty.__dict__.update(__package__=module.__package__, __file__=module.__file__)
    exec(compile(source.replace(right, wrong), str(module.__file__), "exec"), faulty.__dict__)
    ours, theirs = functions(module), functions(faulty)
    kept = {name: function.__code__ for name, function in ours.items()}
    forget()
    try:
        for name, function in ours.items():
            function.__code__ = theirs[name].__code__
        yield
    finally:
        for name, function in ours.items():
            function.__code__ = kept[name]
        forget()


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """A module's own functions and its classes' own methods, by qualified name, wrappers taken off."""
    found: dict[str, FunctionType] = {}
    for holder in (
        module,
        *(c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__),
    ):
        for value in vars(holder).values():
            plain = bare(value)
            if plain is not None and plain.__module__ == module.__name__ and "<locals>" not in plain.__qualname__:
                found[plain.__qualname__] = plain
    return {name: function for name, function in found.items() if not name.split(".")[-1].startswith("__")}


def bare(value: object) -> FunctionType | None:
    """The function inside a property, a cached property, a cache or a class method."""
    for attribute in ("fget", "func", "__wrapped__", "__func__"):
        value = getattr(value, attribute, None) or value
    return value if isinstance(value, FunctionType) else None


def forget() -> None:
    """Empty every function cache of the engine and of the golden tests, so that nothing computed before is seen."""
    for cached in caches():
        cached.cache_clear()


@functools.cache
def caches() -> list[functools._lru_cache_wrapper[object]]:
    """The caches there are, looked for once: all are made when their modules are imported."""
    # type() and not isinstance(): the latter asks every lazy proxy among the objects what it is.
    wrappers = [found for found in gc.get_objects() if type(found) is functools._lru_cache_wrapper]
    return [found for found in wrappers if found.__module__.startswith("engine") or found.__module__ == "test_golden"]
