"""Measurements that others published, beside the floor the ledger gives: rows of `measurements.toml`.

A speed may never beat its floor: if one does, the row, the ledger or the device's file is wrong. Nothing
here is fitted to these rows, and none of them was measured by the lab. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine import catalogue, hardware, roofline
from engine.errors import LabError
from engine.ledger import ENGINE, KV_LAYOUTS, PLAIN_BYTES, WEIGHT_LAYOUTS, Formats, decode, resident
from engine.predict import roof_of
from engine.toml_file import explain, nearest, read_toml

FILE = Path(__file__).with_name("measurements.toml")
MIB = 2**20

Text = Annotated[str, Field(min_length=1, max_length=300)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class _Row(BaseModel):
    """model: a catalogue id; published_as: the name in the source, where it is another of the same shape."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: Text
    published_as: Text | None = None
    condition: Text
    source: Text


class Speed(_Row):
    """A decode speed as printed: tokens_per_s of the whole batch, or ms_per_token of one sequence.

    context: the fewest cached positions a step of the measurement read, so that the floor is one for all of its steps.
    head: the format of the output matrix where it is not that of the norms; weights, kv: formats of the ledger.
    """

    hardware: Text
    weights: Text
    kv: Text = "bf16"
    head: Text | None = None
    batch: Count = 1
    context: Count = 1
    tokens_per_s: Positive | None = None
    ms_per_token: Positive | None = None

    @property
    def time_s(self) -> float:
        """Seconds a decode step took."""
        return self.batch / self.tokens_per_s if self.tokens_per_s else (self.ms_per_token or 0.0) * 1e-3

    @property
    def formats(self) -> Formats:
        """What the ledger has to assume of this measurement."""
        return Formats(weights=self.weights, kv=self.kv, embedding=self.head)


class Size(_Row):
    """What an engine's log says it holds, in MiB: the KV cache of `positions`, or the states of `sequences`."""

    of: Literal["kv", "state"]
    mib: Positive
    sequences: Count = 1
    positions: Count = 1
    kv: Text = "bf16"
    state: Text = "fp32"
    conv: Text = "fp32"

    @property
    def held_bytes(self) -> float:
        """The figure of the log in bytes."""
        return self.mib * MIB

    @property
    def counted_bytes(self) -> int:
        """The same by the ledger; states with the K-1 conv columns that have to be kept.

        Raises:
            LabError: no such model.
        """
        formats = Formats(kv=self.kv, state=self.state, conv=self.conv)
        spec = catalogue.load(self.model)
        held = resident(spec, batch=self.sequences, max_tokens=self.positions, formats=formats, convention=ENGINE)
        return int(held.kv_allocated if self.of == "kv" else held.state + held.conv)


@dataclass(frozen=True, slots=True)
class Measurements:
    """Every published row, as it was read."""

    speeds: tuple[Speed, ...]
    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """A speed beside its datasheet floor, both of one decode step, and the share of the roof it reached (at most 1)."""

    row: Speed
    time_s: float
    floor_s: float
    bound: roofline.Bound

    @property
    def share_of_roof(self) -> float:
        """Floor over measured time: 1 is as fast as the datasheet allows."""
        return self.floor_s / self.time_s


@cache
def published() -> Measurements:
    """The rows that come with the lab."""
    return read_measurements(FILE)


@cache
def judge(row: Speed) -> Judged:
    """A published speed against the device's datasheet, by the `engine` convention.

    Raises:
        LabError: a device without a peak for the dtype.
    """
    roof, _ = roof_of(hardware.load(row.hardware), row.formats)
    spec = catalogue.load(row.model)
    step = decode(spec, row.context + 1, batch=row.batch, formats=row.formats, convention=ENGINE)
    return Judged(row, row.time_s, roofline.floor_ns(step, roof) * 1e-9, roofline.bound(step, roof))


def read_measurements(path: Path) -> Measurements:
    """Rows of a file of the same form as `measurements.toml`.

    Raises:
        LabError: one sentence on the first thing that is wrong.
    """
    tables = read_toml(path)
    for name in tables:
        if name not in ("speed", "size"):
            raise LabError("{file} has an unknown table {key}; it can be speed or size.", file=path.name, key=name)
    speeds = [_speed(fields, where) for fields, where in _rows(tables, "speed", path.name)]
    sizes = [_size(fields, where) for fields, where in _rows(tables, "size", path.name)]
    return Measurements(tuple(speeds), tuple(sizes))


def _rows(tables: Mapping[str, Any], name: str, file: str) -> list[tuple[Mapping[str, Any], str]]:
    rows = tables.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise LabError("{key} in {file} has to be a list of tables, each begun by [[{key}]].", key=name, file=file)
    return [(row, f"{file}, {name} {number}") for number, row in enumerate(rows, start=1)]


EXAMPLES = {
    "model": 'model = "Qwen/Qwen3-4B"', "hardware": 'hardware = "rtx-4090"', "weights": 'weights = "bf16"',
    "condition": 'condition = "context of 1,024, batch 1"', "source": 'source = "title: https://..."',
    "of": 'of = "kv"', "mib": "mib = 598.5", "kv": 'kv = "bf16"', "head": 'head = "int8"', "batch": "batch = 1",
    "context": "context = 1024", "tokens_per_s": "tokens_per_s = 104.9", "ms_per_token": "ms_per_token = 10.3",
    "sequences": "sequences = 4", "positions": "positions = 4096",
}  # fmt: skip


def _speed(fields: Mapping[str, Any], where: str) -> Speed:
    try:
        row = Speed.model_validate(fields)
    except ValidationError as refused:
        raise explain(refused, where, {"": Speed}, EXAMPLES) from None
    if (row.tokens_per_s is None) == (row.ms_per_token is None):
        raise LabError("{file} has to give either tokens_per_s or ms_per_token, as it was printed.", file=where)
    _check_known("model", row.model, catalogue.ids(), where)
    _check_known("hardware", row.hardware, hardware.ids(), where)
    _check_known("weights", row.weights, WEIGHT_LAYOUTS, where)
    _check_known("head", row.head or row.weights, WEIGHT_LAYOUTS, where)
    _check_known("kv", row.kv, KV_LAYOUTS, where)
    return row


def _size(fields: Mapping[str, Any], where: str) -> Size:
    try:
        row = Size.model_validate(fields)
    except ValidationError as refused:
        raise explain(refused, where, {"": Size}, EXAMPLES) from None
    _check_known("model", row.model, catalogue.ids(), where)
    _check_known("kv", row.kv, KV_LAYOUTS, where)
    _check_known("state", row.state, PLAIN_BYTES, where)
    _check_known("conv", row.conv, PLAIN_BYTES, where)
    return row


def _check_known(key: str, name: str, known: Iterable[str], where: str) -> None:
    if name in known:
        return
    near = nearest(name, known)
    if near:
        raise LabError("{file} has {key} {name}; is {near} meant?", file=where, key=key, name=name, near=near)
    raise LabError(
        "{file} has {key} {name}; known are {known}.", file=where, key=key, name=name, known=", ".join(known)
    )
