"""The parts of *This machine*: the device, its ceilings as numbers, and its ridge beside the lesson's card."""

from __future__ import annotations

import streamlit as st

from engine import ridge
from engine.ceilings import Ceilings, DeviceFacts, LinearPoint
from engine.judging import unsteady
from engine.verdict import measured_while_busy
from pages._parts import charts, ridge_words, terms
from pages._parts.plain import plain
from pages._parts.words import Words


def device(t: Words, facts: DeviceFacts) -> None:
    """What computes here."""
    parts = [
        facts.name,
        t.plural("{count} thread", "{count} threads", facts.threads),
        *([t("{size} of memory", size=t.binary_size(facts.memory_bytes))] if facts.memory_bytes else []),
        *(f"{level.capitalize()} {t.binary_size(size)}" for level, size in facts.cache_bytes.items()),
        f"torch {facts.torch_version}",
        *([facts.cpu_capability] if facts.cpu_capability else []),
    ]
    st.markdown(" · ".join(plain(part) for part in parts))


def metrics(t: Words, ceilings: Ceilings) -> None:
    """The ceilings as numbers, after a word of warning where they cannot be trusted."""
    busy = measured_while_busy(ceilings)
    if not unsteady_ceilings(t, ceilings, here=True) and busy is not None:
        st.warning(plain(t.sentence(busy)), icon=":material/warning:")
    memory, cache = ceilings.bandwidth[-1], max(ceilings.bandwidth, key=lambda point: point.bytes_per_s)
    shown = [
        *((label, t.bandwidth(point.bytes_per_s), point.spread, t.binary_size(point.working_set_bytes),
           t("How fast it reads {size} over and over.", size=t.binary_size(point.working_set_bytes)))
          for label, point in ((t("Reads from memory"), memory), (t("Reads from cache"), cache))),
        *((t("Multiplies, {dtype}", dtype=dtype), t.rate(rate), ceilings.peak_spread_of(dtype), None, t(terms.PEAK))
          for dtype, rate in ceilings.peak_flops_per_s.items()),
        (t("Launch cost"), t.duration(ceilings.launch_ns), ceilings.launch_spread, None, t(terms.LAUNCH)),
    ]  # fmt: skip
    with st.container(key="ceilings"):
        for label, value, spread, size, explanation in shown:
            plus_minus = f"± {t.percent(spread)}" if spread < charts.WIDEST else t("± more than itself")
            st.metric(
                label,
                value,
                plus_minus if size is None else t("{spread} at {size}", spread=plus_minus, size=size),
                delta_color="off",
                delta_arrow="off",
                help=explanation,
                border=True,
            )
    st.caption(
        t(
            "Measured {when}. ± is half the spread of the middle half of all repetitions. A model's own matrices are "
            "timed before its first run, and raise a rate where they are multiplied or read faster.",
            when=t.moment(ceilings.measured_at),
        )
    )


def unsteady_ceilings(t: Words, ceilings: Ceilings, *, here: bool = False) -> bool:
    """A warning where what rests on these ceilings says little (`unsteady_words`), or none; whether there is one."""
    said = unsteady_words(t, ceilings, here=here)
    if said:
        st.warning(t.paragraph(said), icon=":material/warning:")
    return bool(said)


def unsteady_words(t: Words, ceilings: Ceilings, *, here: bool = False) -> list[str]:
    """What to know and do where the repetitions behind a ceiling lie far apart; nothing where they do not.

    here: it is said on *This machine* itself, beside the button that measures again.
    """
    named = {
        **{t("reading {size}", size=t.binary_size(p.working_set_bytes)): p.spread for p in ceilings.bandwidth},
        t("multiplying"): ceilings.peak_spread,
        t("starting an operation"): ceilings.launch_spread,
    }
    which = max(named, key=named.__getitem__)
    if unsteady([named[which]]) is None:
        return []
    return [
        t(
            "The repetitions behind what this machine reaches lie far apart, most at {which}: ± {spread} around their "
            "median. It was not left alone, and lines drawn from them are unsure.",
            which=which,
            spread=t.percent(named[which], 0),
        ),
        t("Close other programs and press Measure again.")
        if here
        else t("Close other programs and measure again on *This machine*."),
    ]


def ridges(t: Words, ceilings: Ceilings) -> None:
    """Where reading and arithmetic take equally long: here, and on the lesson's card."""
    st.header(t("How many rows it takes to use it fully"))
    said = [
        ridge_words.machine(t, ceilings),
        ridge_words.card(t),
        t("With fewer rows a pass costs the same however few it has: that is why writing one token at a time is slow."),
    ]
    st.markdown(t.paragraph(said), help=t.paragraph([t(terms.RIDGE), ridge_words.why(t)]))
    groups = sorted({(point.multiplication, point.working_set_bytes) for point in ceilings.linear})
    if not groups:
        st.caption(
            t("The curve of single matrices appears once a model has run here: it is measured at that model's shapes.")
        )
        return
    names = [t("{dtype}, model of {size}", dtype=name, size=t.size(size)) for name, size in groups]
    for group, tab in zip(groups, st.tabs(names), strict=True):
        points = [point for point in ceilings.linear if (point.multiplication, point.working_set_bytes) == group]
        with tab:
            _own_ridge(t, points[0], ceilings)
            st.plotly_chart(charts.rows_figure(t, points, ceilings), config=charts.CONFIG, key=f"rows_{group}",
                            alt=t("Rate of a multiplication against its rows."))  # fmt: skip


def _own_ridge(t: Words, point: LinearPoint, ceilings: Ceilings) -> None:
    """Why this model's ridge may lie elsewhere than the one named above."""
    limits = ridge.of_point(point, ceilings)
    if limits is None:
        return
    st.caption(
        t(
            "A model of {size} is read at {rate} here, so in {dtype} it turns at {rows} rows. A curve that "
            "turns later is a kernel that stays below the roof.",
            size=t.size(point.working_set_bytes),
            rate=t.bandwidth(limits.bytes_per_s),
            dtype=point.multiplication,
            rows=t.number(limits.rows),
        )
    )
