"""A ridge said in full: whose it is, in which number format, and why another place names another number.

A ridge is the fastest multiplication over the fastest reading, so one machine has many of them: one for each number
format, another where weights stay in a cache. Whoever names one takes its words from here, and the number from the
measurement or the data sheet.
"""

from __future__ import annotations

from engine import hardware, ridge
from engine.ceilings import Ceilings
from pages._parts import doubts
from pages._parts.words import Words

CARD, CARD_FORMAT = "h100-sxm", "bf16"


def mark(t: Words, value: float, dtype: str, device: str | None = None) -> str:
    """A ridge on a chart of intensity, short: whose, in which format, where.

    Args:
        value: in FLOP/byte, which is not rows.
        device: whose it is, by name; None for this machine.
    """
    said = {"dtype": dtype, "value": t.number(value)}
    if device is None:
        return t("ridge of this machine, {dtype}: {value} FLOP/byte", **said)
    return t("ridge of {device}, {dtype}: {value} FLOP/byte", device=device, **said)


def mark_rows(t: Words, count: float, dtype: str, read_bytes: float) -> str:
    """This machine's ridge on a chart over rows, for weights of that many bytes: a cache may read them faster."""
    return t("ridge reading {size}, {dtype}: {rows} rows", size=t.size(read_bytes), dtype=dtype, rows=t.number(count))


def rows(t: Words, count: float, dtype: str) -> str:
    """A ridge in rows with its format: 22.2 rows in fp32."""
    return t("{rows} rows in {dtype}", rows=t.number(count), dtype=dtype)


def machine(t: Words, ceilings: Ceilings | None) -> str:
    """This machine's ridges in rows, one for each format it was measured in, and what to doubt in them; that it was not
    measured, where it was not.
    """
    found = ridge.of_ceilings(ceilings) if ceilings is not None and ceilings.bandwidth else {}
    if not found:
        return t("This machine's own ridge is known once it has been measured, on *This machine*.")
    each = t(", ").join(rows(t, count, dtype) for dtype, count in found.items())
    said = t("This machine's ridge, with weights read from memory: {ridges}.", ridges=each)
    return t.paragraph([said, doubts.sentence(t, doubts.of_ceilings(ceilings))])


def card(t: Words, device_id: str = CARD, dtype: str = CARD_FORMAT) -> str:
    """A listed device's ridge by its data sheet; empty where the sheet has no such rate."""
    device = hardware.load(device_id)
    found = ridge.of_device(device, dtype)
    if found is None:
        return ""
    return t("{device} by its data sheet: {ridge}.", device=device.name, ridge=rows(t, found, dtype))


def why(t: Words) -> str:
    """Why two places name two numbers for one machine."""
    return t(
        "One machine has more than one ridge: it is the fastest multiplication over the fastest reading, and both are "
        "others in another number format, or where the weights stay in a cache. A single matrix turns elsewhere again, "
        "at its knee, because with few rows its kernel is slower than the fastest multiplication."
    )
