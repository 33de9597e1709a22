"""The table of levers: predicted beside measured, a sentence each."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from engine import quality
from engine.errors import Sentence
from engine.lever_outcome import miss
from engine.lever_record import PULLED, Lever, LeversRecord
from pages._parts import session, terms
from pages._parts.lever_results import Result
from pages._parts.plain import plain
from pages._parts.words import Words

WIDTHS = [9, 6, 6, 5]


def table(
    t: Words,
    forecast: LeversRecord,
    results: dict[str, Result],
    failures: dict[str, Sentence],
    *,
    pull: Callable[[str], None],
    can_measure: bool,
    unsure: bool,
) -> None:
    """Every lever in a row; `unsure` is said at each forecast."""
    own, measured = forecast.base, forecast.base_measured
    st.caption(
        t(
            "Tokens a second are those of the median step here, for drafts those of all checks together; the list "
            "above and *Live run* give the mean over all steps."
        )
    )
    with st.container(border=True):
        what, predicted, found, _ = st.columns(WIDTHS)
        what.markdown(t("**The run as it was**"))
        predicted.markdown(t("predicted: **{rate} tokens/s**", rate=t.number(own.tokens_per_s)))
        found.markdown(t("measured: **{rate} tokens/s**", rate=t.number(measured.tokens_per_s)))
    for lever in forecast.levers:
        if lever.kind in PULLED:
            failure = failures.get(lever.name)
            _row(t, lever, results.get(lever.name), failure, pull, can_measure=can_measure, unsure=unsure)


def replaced(t: Words, forecast: LeversRecord, *, unsure: bool) -> None:
    """What is not this run made faster, but another device or model in place of one."""
    for lever in forecast.levers:
        if lever.kind not in PULLED:
            _row(t, lever, None, None, lambda _name: None, can_measure=False, unsure=unsure)


def _row(
    t: Words,
    lever: Lever,
    result: Result | None,
    failure: Sentence | None,
    pull: Callable[[str], None],
    *,
    can_measure: bool,
    unsure: bool,
) -> None:
    with st.container(border=True):
        what, predicted, found, button = st.columns(WIDTHS)
        doubt = t("unsure")
        with what:
            st.markdown(f"**{plain(t.sentence(lever.what))}**")
            st.caption(plain(t.sentence(lever.rests_on)))
            _quality(t, lever)
        predicted.markdown(
            t("predicted **× {gain}**", gain=t.number(lever.gain))
            + (f" ({doubt})" if unsure else "")
            + f"  \n{t('{rate} tokens/s', rate=t.number(lever.predicted.tokens_per_s))}"
            + _foretold(t, lever)
        )
        with found:
            _found(t, lever, result)
        with button:
            if lever.request is None:
                st.caption(t("predicted only"))
            else:
                st.button(
                    t("Measure") if result is None else t("Measure again"),
                    key=f"pull_{lever.name}",
                    on_click=pull,
                    args=(lever.name,),
                    disabled=not can_measure,
                )
        if failure is not None:
            st.error(plain(t.sentence(failure)), icon=":material/error:")


def _quality(t: Words, lever: Lever) -> None:
    """What fewer bytes cost in what the model says, where that was measured."""
    asked = lever.request
    if asked is None or lever.kind not in ("weights", "kv"):
        return
    found = quality.of(asked.model, asked.weights or "fp32", asked.kv or "fp32")
    if found is None:
        return
    said = t(
        "Quality on a fixed text: perplexity {en} in English and {zh} in Chinese, {en_fp32} and {zh_fp32} in fp32; "
        "the likeliest token is the same at {agreement} of positions.",
        en=t.number(found.perplexity["en"]),
        zh=t.number(found.perplexity["zh"]),
        en_fp32=t.number(found.perplexity_fp32["en"]),
        zh_fp32=t.number(found.perplexity_fp32["zh"]),
        agreement=t.percent(min(found.agreement.values())),
    )
    st.caption(said, help=t(terms.PERPLEXITY))


def _foretold(t: Words, lever: Lever) -> str:
    if lever.foretold_passes is None:
        return ""
    said = t("{passes} checks", passes=t.number(lever.foretold_passes))
    if lever.foretold_acceptance is not None:
        said += " · " + t("{share} of drafts kept", share=t.percent(lever.foretold_acceptance))
    return f"  \n{said}"


def _found(t: Words, lever: Lever, result: Result | None) -> None:
    if result is None:
        st.markdown(t("not measured yet") if lever.request is not None else "–")
        return
    name, record_id = result.link
    doubt = t("unsure")
    lines = [
        t("measured **× {gain}**", gain=t.number(result.gain)) + (f" ({doubt})" if result.disturbed else ""),
        t("{rate} tokens/s", rate=t.number(result.measured.tokens_per_s)),
    ]
    if result.against_tokens_per_s is not None:
        lines.append(t("against {rate} one token at a time, in turn", rate=t.number(result.against_tokens_per_s)))
    if result.passes is not None:
        kept = t.percent(result.acceptance or 0.0)
        lines.append(
            t("{passes} checks", passes=t.number(result.passes)) + " · " + t("{share} of drafts kept", share=kept)
        )
    st.markdown("  \n".join(lines))
    if result.same is not None:
        st.caption(
            t("Every token is the one that was written without drafts.")
            if result.same
            else t("The tokens differ from greedy's: a defect.")
        )
    st.caption(plain(t.sentence(miss(lever, result.gain, disturbed=result.disturbed))))
    if name == "run":
        said = t("the run")
        st.markdown(f"[{said}]({session.base_path()}/?run={record_id}&lang={t.language})")
    else:
        base = f"{session.base_path()}/api/experiments/{record_id}"
        st.markdown(f"[JSON]({base}.json) · [CSV]({base}.csv)")
