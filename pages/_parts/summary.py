"""A finished run in words, numbers, a table, its tokens, its circumstances and its files. Draws; computes nothing."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from engine import growth, ridge
from engine.ceilings import Ceilings, DeviceFacts
from engine.errors import N_, Sentence
from engine.judging import was_busy
from engine.record import Probe, Run, Summary
from pages._parts import components, machine_facts, ridge_words, session, terms
from pages._parts.links import build_link
from pages._parts.plain import plain
from pages._parts.roofline_chart import kind_names
from pages._parts.words import Words

MAX_CHIPS = 400
MAX_PROMPT = 120
_BOUNDS = (N_("memory"), N_("compute"), N_("launches"))  # a step's `bound`, said with t(step.bound)


def headline(t: Words, run: Run, *, is_elsewhere: bool) -> None:
    """Where it was recorded, if not here; the verdict, or why there is none; what to do about a doubtful one."""
    if is_elsewhere:
        _recorded(t, run)
    if run.error is not None:
        st.error(plain(t.sentence(run.error)), icon=":material/error:")
    if run.summary is not None:
        first, *rest = run.summary.verdict_sentences or [Sentence(template=run.summary.verdict)]
        said, more = t.sentence(first), t.sentences(rest)
        with st.container(key="verdict"):
            st.text(t.of_another(said) if is_elsewhere else said)
        if more:
            st.text(t.of_another(more) if is_elsewhere else more)
        if not is_elsewhere:
            _advice(t, run.summary, run.ceilings)
            if run.ceilings is not None and was_busy(run.ceilings):
                st.page_link("machine.py", label=t("Measure this machine again"), icon=":material/arrow_forward:")
    notes = run.model.notes if run.model is not None else []
    for note in notes:
        st.text(t.sentence(note))
    if run.model is not None and run.model.weights == "random" and not notes:  # a record older than notes
        st.caption(t("This model's weights are random: its times are real, its text means nothing."))


def _recorded(t: Words, run: Run) -> None:
    """Whose run it is, and what it was asked: the prompt box beside it may hold another text."""
    device = plain(run.device.name) if run.device else t("another machine")
    when, asked = t.day(run.created_at), " ".join(run.request.prompt.split())
    prompt = plain(asked if len(asked) <= MAX_PROMPT else f"{asked[:MAX_PROMPT]}…")
    badge = t("recorded")
    st.markdown(
        f":violet-badge[:material/history: {badge}] "
        + t("on **{device}** on {when}, not on the machine you are using now. Its prompt: “{prompt}”",
            device=device, when=when, prompt=prompt)
    )  # fmt: skip


def _advice(t: Words, summary: Summary, ceilings: Ceilings | None) -> None:
    """What to do about a doubtful run, in one place; the verdict has said what is doubtful."""
    said = {
        "beats_roof": t(
            "Nothing is faster than its roof. Most likely this machine was slower while it was measured: "
            "measure it again on the page This machine."
        ),
        "beats_datasheet": t(
            "Nothing is faster than its data sheet. Most likely the weights lie in a cache, "
            "or the bytes are counted wrongly."
        ),
        "disturbed": t("Close other programs and run again before comparing this run with another."),
    }
    unsteady = machine_facts.unsteady_words(t, ceilings) if ceilings is not None else []
    paragraphs = [*(said[flag] for flag in summary.flags), t.paragraph(unsteady)]
    if any(paragraphs):
        st.warning("\n\n".join(filter(None, paragraphs)), icon=":material/warning:")


def metrics(t: Words, summary: Summary) -> None:
    """The run in a few numbers, each explained on hover."""
    tpot = summary.tpot_ms
    shown = [
        ("TTFT", _ms(t, summary.ttft_ms), terms.TTFT),
        ("TPOT p50", _ms(t, tpot.p50 if tpot else None), terms.TPOT),
        ("TPOT p95", _ms(t, tpot.p95 if tpot else None), terms.TPOT),
        ("TPOT p99", _ms(t, tpot.p99 if tpot else None), terms.TPOT),
        (
            t("Tokens/s, mean"),
            None if summary.tokens_per_s is None else t.number(summary.tokens_per_s),
            terms.TOKENS_PER_S_MEAN,
        ),
        ("MBU", _share(t, summary.mbu), terms.MBU),
        (t("Prefill MFU"), _share(t, summary.mfu_prefill), terms.MFU),
        (t("Prediction error"), _share(t, summary.median_abs_error), terms.EXPECTED_ERROR),
    ]
    with st.container(key="metrics"):
        for label, value, explanation in shown:
            st.metric(label, value or "–", help=t(explanation), border=True)


def _ms(t: Words, value: float | None) -> str | None:
    return None if value is None else f"{t.number(value)} ms"


def _share(t: Words, value: float | None) -> str | None:
    return None if value is None else t.percent(value, 0 if value >= 0.1 else 1)


def details(t: Words, run: Run) -> None:
    """Everything behind the numbers, a tab each."""
    table, tokens, measured, share = st.tabs([t("Steps"), t("Tokens"), t("Measured on"), t("Share and keep")])
    with table:
        _table(t, run)
    with tokens:
        _tokens(t, run)
    with measured:
        _measured_on(t, run)
    with share:
        _share_and_keep(t, run)


def _table(t: Words, run: Run) -> None:
    columns: dict[str, list[Any]] = {
        # What a narrow window shows comes first: the answer before what it rests on.
        t("step"): [step.index for step in run.steps],
        t("phase"): [t(step.phase) for step in run.steps],
        t("measured, ms"): [step.time_ns / 1e6 for step in run.steps],
        t("bound by"): [t(step.bound) for step in run.steps],
        t("expected, ms"): [step.predicted_ns.expected / 1e6 for step in run.steps],
        t("roof, ms"): [step.predicted_ns.measured_roof / 1e6 for step in run.steps],
        t("rows"): [step.tokens for step in run.steps],
        t("context"): [step.context for step in run.steps],
        t("text"): [step.text for step in run.steps],
        **_bytes_columns(t, run),
        "MFLOP": [step.flops / 1e6 for step in run.steps],
    }
    decimals = st.column_config.NumberColumn(format="accounting")  # two decimals, thousands apart as elsewhere
    numeric = [name for name, values in columns.items() if values and isinstance(values[0], float)]
    st.dataframe(pd.DataFrame(columns), hide_index=True, height=320, column_config=dict.fromkeys(numeric, decimals),
                 alt=t("Each step of the run: measured and predicted time, bytes, and what binds it."))  # fmt: skip


def _bytes_columns(t: Words, run: Run) -> dict[str, list[Any]]:
    """Megabytes moved by kind, for the kinds there are."""
    kinds = [growth.by_kind(step.bytes.model_dump(), step.parts.model_dump()) for step in run.steps]
    names = kind_names(t)
    shown = [kind for kind in names if kind in ("weights", "kv") or any(each[kind] for each in kinds)]
    return {t("{kind}, MB", kind=names[kind]): [each[kind] / 1e6 for each in kinds] for kind in shown}


def _tokens(t: Words, run: Run) -> None:
    rows = []
    if run.prompt is not None:
        pieces = run.prompt.pieces or ["·"] * len(run.prompt.token_ids)
        rows.append(chip_row(t, t("Prompt: {count} tokens, read in one pass", count=len(run.prompt.token_ids)),
                             pieces, run.prompt.token_ids))  # fmt: skip
    written = [step.token_ids[0] for step in run.steps]
    rows.append(
        chip_row(
            t,
            t("Written: {count} tokens, one pass each", count=len(written)),
            [step.text for step in run.steps],
            written,
        )
    )
    components.chips(rows, key="run_chips")


def chip_row(t: Words, title: str, pieces: list[str], ids: list[int]) -> dict[str, object]:
    """One row for `components.chips`; a very long one is cut and says so."""
    hidden = len(ids) - MAX_CHIPS
    note = t("and {count} more", count=t.number(hidden)) if hidden > 0 else ""
    return {"title": title, "tokens": list(zip(pieces, ids, strict=False))[:MAX_CHIPS], "note": note}


def _measured_on(t: Words, run: Run) -> None:
    device, model, probe, ceilings = run.device, run.model, run.probe, run.ceilings
    facts: list[tuple[str, str]] = []
    if device is not None:
        facts += [
            (t("Device"), device.name),
            (t("Threads"), str(device.threads)),
            (t("Software"), f"torch {device.torch_version}, Roofline Lab {run.package_version}"),
            *_kernels(t, device),
        ]
    if model is not None:
        count = t("{count} parameters", count=t.many(model.parameters))
        kind = t("real weights") if model.weights == "real" else t("random weights")
        facts += [
            (t("Model"), f"{model.id}, {model.weight_format}, {kind}, {count}"),
            (t("KV cache"), model.kv_format),
            (t("Weights' hash"), model.weights_hash[:16]),
        ]
    facts += _prepared(t, run)
    if ceilings is not None:
        facts.append((t("Ceilings measured"), t.moment(ceilings.measured_at)))
        turns = (ridge_words.rows(t, count, dtype) for dtype, count in ridge.of_ceilings(ceilings).items())
        facts.append((t("Ridge of that machine, weights read from memory"), t(", ").join(turns)))
    if probe is not None:
        before, after, moved = t.duration(probe.before_ns), t.duration(probe.after_ns), t.percent(probe.moved)
        said = t("{before} before, {after} after ({moved})", before=before, after=after, moved=moved)
        facts.append((t("Control probe"), said))
        facts += _controls(t, probe)
    facts.append((t("Asked for"), t.moment(run.created_at)))
    facts.append(
        (t("Warm-up"), t.plural("{count} step, not shown", "{count} steps, not shown", len(run.warm_up_steps)))
    )
    with st.container(gap="xxsmall"):
        for label, value in facts:
            st.text(f"{label}: {value}")


def _controls(t: Words, probe: Probe) -> list[tuple[str, str]]:
    """What the expected line was scaled by; nothing where it was not."""
    reading, multiplying = (_time_since(t, ratio) for ratio in (probe.reading_scaled_by, probe.multiplying_scaled_by))
    if reading == multiplying == _time_since(t, 1.0):
        return []
    said = t(
        "Compared with when this machine was measured, reading these weights took {reading} time right before this "
        "run, and multiplying {multiplying}. The expected line is scaled by that.",
        reading=reading,
        multiplying=multiplying,
    )
    return [(t("Control readings"), said)]


def _time_since(t: Words, ratio: float) -> str:
    share = t.percent(abs(ratio - 1), 0)
    if share == t.percent(0, 0):
        return t("as much")
    return t("{share} more", share=share) if ratio > 1 else t("{share} less", share=share)


def _kernels(t: Words, device: DeviceFacts) -> list[tuple[str, str]]:
    """What the run's steps ran through, where the record says it."""
    compiled, whole, few = (device.kernels.get(name) for name in ("decode", "whole_steps", "few_rows"))
    if whole:
        said = t("{compiled} for whole steps of up to {rows} rows, PyTorch for more", compiled=compiled, rows=whole)
    elif few and few != "0":
        rows = few.replace("-", "–")
        said = t("{compiled} for products of up to {rows} rows, PyTorch for the rest", compiled=compiled, rows=rows)
    elif few or compiled == "torch":
        said = "PyTorch"
    else:
        return []
    return [(t("Kernels"), said)]


def _prepared(t: Words, run: Run) -> list[tuple[str, str]]:
    """What took time before the first step, once: a label and a duration each."""
    took = run.preparation
    if took is None:
        return []
    named = [
        (t("Loading the weights"), took.load_ns),
        (t("Compiling kernels, once"), took.compile_ns),
        (t("Recording the graph"), took.capture_ns),
    ]
    return [(label, t.duration(time_ns)) for label, time_ns in named if time_ns]


def _share_and_keep(t: Words, run: Run) -> None:
    st.caption(t("This link shows the same run to anyone who can reach this lab; nothing runs again."))
    st.code(build_link(session.address(), run=run.id, language=t.language), language=None, wrap_lines=True)
    with st.container(horizontal=True):
        base = session.base_path()
        st.link_button(t("Record as JSON"), f"{base}/api/runs/{run.id}.json", icon=":material/download:")
        st.link_button(t("Steps as CSV"), f"{base}/api/runs/{run.id}.csv", icon=":material/table:")
