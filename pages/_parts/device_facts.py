"""The parts of *Devices*: two cards side by side, the list of all, a device's sources and remarks, published rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pandas as pd
import streamlit as st

from engine import hardware, measurements
from engine.errors import LabError
from engine.hardware import Device
from engine.measurements import Judged
from engine.two_estimates import Change, Estimate
from pages._parts import components, device_charts, explained, terms
from pages._parts.folded import folded
from pages._parts.plain import plain
from pages._parts.words import Words


def name_of(t: Words, each: Estimate) -> str:
    """A device by name."""
    return t("This machine") if each.device.id == "this-machine" else str(each.device.name)


def exchange(t: Words, before: Estimate, after: Estimate, unit: str) -> None:
    """Both estimates on both cards, what the exchange does to each, and which of the two the step follows."""
    change = Change.between(before, after)
    rows = [
        (
            t("compute alone"),
            before.compute_tokens_per_s,
            after.compute_tokens_per_s,
            change.compute,
            terms.COMPUTE_ALONE,
        ),
        (t("bytes alone"), before.memory_tokens_per_s, after.memory_tokens_per_s, change.memory, terms.BYTES_ALONE),
        (t("at best"), before.tokens_per_s, after.tokens_per_s, change.both, terms.ROOFLINE),
    ]
    st.caption(t("{unit}, before → after", unit=unit))
    with st.container(key="metrics-exchange", horizontal=True, gap="small"):
        for label, old, new, times, about in rows:
            st.metric(
                label,
                f"{t.number(old)} → {t.number(new)}",
                _times(t, times),
                delta_color="off",
                delta_arrow="off",
                help=t(about),
                border=True,
                width=165,
            )
    st.markdown(_verdict(t, before, after, change))


def _times(t: Words, factor: float) -> str:
    gain = (factor - 1) * 100
    return f"× {t.number(factor, 2)} ({'+' if gain >= 0 else '−'}{t.number(abs(gain), 0)} %)"


def _verdict(t: Words, before: Estimate, after: Estimate, change: Change) -> str:
    said = {
        "old": plain(name_of(t, before)),
        "new": plain(name_of(t, after)),
        "compute": t.number(change.compute, 2),
        "bytes": t.number(change.memory, 2),
        "both": t.number(change.both, 2),
        "time": explained.milliseconds(t, before.time_s),
        "then": explained.milliseconds(t, after.time_s),
    }
    if before.bound == after.bound == "memory":
        return t(
            "From {old} to {new} the step goes from **{time}** to **{then}** at best, × {both} the speed. Bytes take "
            "longer than compute on both cards, so the step follows the estimate by **bytes**; compute alone would "
            "have promised × {compute}.",
            **said,
        )
    if before.bound == after.bound == "compute":
        return t(
            "From {old} to {new} the step goes from **{time}** to **{then}** at best, × {both} the speed. Compute "
            "takes longer than bytes on both cards, so the step follows the estimate by **compute**; bytes alone would "
            "have promised × {bytes}.",
            **said,
        )
    return t(
        "From {old} to {new} the step goes from **{time}** to **{then}** at best, × {both} the speed. The slower part "
        "changes from one card to the other, so the step follows neither estimate alone (compute × {compute}, bytes × "
        "{bytes}).",
        **said,
    )


def table(t: Words, estimates: Sequence[Estimate]) -> None:
    """Every device with both estimates, fastest first."""
    slower = {"memory": t("bytes"), "compute": t("compute")}
    columns = {
        t("device"): [name_of(t, each) for each in estimates],
        t("compute alone"): [each.compute_tokens_per_s for each in estimates],
        t("bytes alone"): [each.memory_tokens_per_s for each in estimates],
        t("at best"): [each.tokens_per_s for each in estimates],
        t("slower part"): [slower[each.bound] for each in estimates],
        t("ridge"): [each.ridge_flop_per_byte for each in estimates],
        t("peak of"): [each.dtype for each in estimates],
        t("fits"): [None if each.room_bytes is None else each.room_bytes >= 0 for each in estimates],
    }
    whole = st.column_config.NumberColumn(format="localized")
    decimals = st.column_config.NumberColumn(format="accounting")  # two, so that a column's numbers end alike
    numbers = {
        t("compute alone"): decimals,
        t("bytes alone"): decimals,
        t("at best"): decimals,
        t("ridge"): whole,
    }
    shown = pd.DataFrame(columns).round({t("ridge"): 0})
    st.dataframe(shown, hide_index=True, height=330, column_config=numbers, alt=t("Both estimates for every device."))


def left_out(t: Words, listed: Sequence[Any], shown: Sequence[Estimate]) -> None:
    """Which devices the table does not have, and why."""
    ids = {each.device.id for each in shown}
    names = [each.name for each in listed if each.id not in ids]
    if names:
        st.caption(
            t.plural(
                "{count} device is not listed: its maker gives no peak rate for these formats that could be relied on.",
                "{count} devices are not listed: their makers give no peak rate for these formats that could be "
                "relied on.",
                len(names),
            ),
            help=", ".join(plain(name) for name in names),
        )


def card(t: Words, device: Device) -> None:
    """A device's figures, the usual mistakes about it, and where the figures come from."""
    st.markdown(f"**{plain(device.name)}**")
    facts = [
        *(f"{dtype}: {explained.peak(t, peak.dense_flops_per_s)}" for dtype, peak in device.peaks.items()),
        t("bandwidth {value}", value=t.bandwidth(device.bandwidth_bytes_per_s)),
        *([t("memory {size}", size=t.size(device.memory_bytes))] if device.memory_bytes else []),
        *([f"{t.number(device.power_w)} W"] if device.power_w else []),
        *([str(device.year)] if device.year else []),
        t("confidence {grade}", grade=device.confidence),
    ]
    st.markdown(" · ".join(plain(fact) for fact in facts), help=t(terms.CONFIDENCE))
    mistake = t("usual mistake")
    for remark in device.remarks:
        st.markdown(f":orange-badge[{mistake}] {plain(remark)}")
    st.caption(t("Sources"))
    st.markdown("\n".join(f"- {_source(text)}" for text in device.sources.values()))


def _source(text: str) -> str:
    title, found, address = text.rpartition("https://")
    if not found:
        return plain(text)
    where, _, rest = address.partition(" ")
    return f"{plain(title.rstrip(': '))} <https://{where}> {plain(rest)}"


@cache
def _judged() -> tuple[tuple[str, str, Judged], ...]:
    found = []
    for row in measurements.published().speeds:
        try:
            found.append((row.published_as or row.model, hardware.load(row.hardware).name, measurements.judge(row)))
        except LabError:  # a device without a peak for the dtype has no floor to compare with
            continue
    return tuple(found)


def published(t: Words) -> None:
    """Speeds that others published, against the floor, with the share of the roof they reach."""
    rows = _judged()
    components.figure(device_charts.published(t, rows), key="published_figure")
    st.caption(
        t(
            "Each bar is a speed someone published, as a share of what the device's data sheet allows for that "
            "model and those formats. "
            "The red line is the roof itself, and no bar may pass it. What is missing to it is software, "
            "launches, and clocks below the sheet's."
        )
    )
    with folded(t("The rows with their sources"), "published_rows") as is_open:
        if is_open:
            _rows(t, rows)


def _rows(t: Words, rows: Sequence[tuple[str, str, Judged]]) -> None:
    """Each published speed with its floor, its condition and its source."""
    table = pd.DataFrame(
        {
            t("model"): [model for model, _, _ in rows],
            t("device"): [device for _, device, _ in rows],
            t("weights"): [judged.row.weights for *_, judged in rows],
            t("measured, ms"): [judged.time_s * 1e3 for *_, judged in rows],
            t("floor, ms"): [judged.floor_s * 1e3 for *_, judged in rows],
            t("share"): [judged.share_of_roof for *_, judged in rows],
            t("condition"): [judged.row.condition for *_, judged in rows],
            t("source"): [judged.row.source for *_, judged in rows],
        }
    )
    decimals = st.column_config.NumberColumn(format="%.2f")
    st.dataframe(
        table,
        hide_index=True,
        column_config={
            t("measured, ms"): decimals,
            t("floor, ms"): decimals,
            t("share"): st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1),
        },
        alt=t("Published speeds, their floor, and where they can be read."),
    )
