"""A question for each step of the path, asked before its page is seen, and what to hold the reader's guess against.

Predicted numbers come from `engine.lesson`, measured ones from the run on show or this machine's ceilings. The guess
itself never comes here: it is locked in, compared and kept in the browser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import lesson, ridge
from pages._lesson import doubts, two_phases
from pages._lesson.answers import Answer, choice, measured, number, predicted
from pages._lesson.known import Known
from pages._parts.doubts import of_ceilings
from pages._parts.words import Words

Asked = dict[str, Any]


def ask(t: Words, step: str, known: Known) -> Asked:
    """The question of a step as the card shows it."""
    return _ASK[step](t, known)


def _question(t: Words, known: Known) -> Asked:
    phases = known.phases
    answers = [predicted(t, t("a long prompt on an H100, predicted"), lesson.figure("written_over_read"))]
    if phases is not None:
        answers = [
            # First what a guess is held against.
            measured(t, t("this run, measured"), phases.written_over_read, doubts.of_run(known.run)),
            predicted(
                t, t("this run, predicted before it"), phases.expected_written_over_read, doubts.of_lines(known.run)
            ),
            *answers,
        ]
    return number(
        t("A written token takes how many times as long as a token of the prompt that is read?"),
        t("times"),
        (0.1, 10_000),
        answers,
        t(
            "Both kinds of token go through the same layers with the same arithmetic. That they cost so "
            "differently is what the rest of the path explains."
        ),
    )


def _request(t: Words, known: Known) -> Asked:
    prompt, output = lesson.PAPER
    text = t.number(lesson.figure("paper_passes"))
    engine = t.number(lesson.figure("paper_passes_engine"))
    phases = known.phases
    answers = [
        Answer("predicted", t("with a pass for each of the {output} new tokens", output=output), text),
        Answer("predicted", t("where the first of them is picked from the prompt's own pass, as here"), engine),
    ]
    if phases is not None:
        shown = t(
            "{prompt} tokens in, {written} out: {passes} passes",
            prompt=t.number(phases.prompt_tokens),
            written=t.number(phases.written_tokens),
            passes=t.number(phases.passes),
        )
        answers.append(Answer("measured", t("the run on this page"), shown))
    said = {"prompt": t.number(prompt), "output": t.number(output)}
    return choice(
        t(
            "A prompt of {prompt} tokens and an answer of {output}: how often does the model go through all its "
            "weights?",
            **said,
        ),
        {
            "each": t("once for each of the {all} tokens", all=t.number(prompt + output)),
            "prompt-once": t("once for the whole prompt, then once for each new token"),
            "phase": t("twice: once to read and once to write"),
            "once": t("once"),
        },
        ("prompt-once",),
        answers,
        t(
            "That makes 1 + {output} = {text} passes, and on paper it is counted so. But the pass over the prompt ends "
            "with the scores of the next token already. An engine that picks the first new token there, as this one "
            "does, needs one pass less for the same text: 1 + {less} = {engine}.",
            text=text,
            engine=engine,
            less=t.number(output - 1),
            **said,
        ),
    )


def _first_guess(t: Words, known: Known) -> Asked:
    return number(
        t(
            "By arithmetic alone: how many tokens a second does an H100 write, at {tflops} TFLOP/s?",
            tflops=t.number(lesson.figure("h100_tflops"), 1),
        ),
        t("tokens/s"),
        (1, 1_000_000),
        [predicted(t, t("by compute alone, predicted"), lesson.figure("flops_only_rate"))],
        t("There is no measurement to set beside it: no machine comes near. The next step says why."),
    )


def _where_it_fails(t: Words, known: Known) -> Asked:
    answers = [predicted(t, t("by bytes alone, predicted"), lesson.figure("weights_only_rate"))]
    phases = known.phases
    if phases is not None and known.run is not None:
        model = known.run.request.model
        answers += [
            predicted(
                t,
                t("{model} in the run on show, at best", model=model),
                1e9 / phases.roof_decode_ns,
                doubts.of_lines(known.run),
            ),
            measured(
                t,
                t("{model} in the run on show, measured", model=model),
                1e9 / phases.decode_ns,
                doubts.of_run(known.run),
            ),
        ]
    return number(
        t(
            "How many tokens a second are left, if each of them needs {size} GB from a memory that gives {rate} TB/s?",
            size=t.number(lesson.figure("weight_gb"), 2),
            rate=t.number(lesson.figure("h100_tb_per_s"), 2),
        ),
        t("tokens/s"),
        (1, 1_000_000),
        answers,
        t("The compute is there, but it waits: nearly all of the time goes into bringing the weights in."),
    )


def _roofline(t: Words, known: Known) -> Asked:
    answers = [predicted(t, t("an H100 in bf16, everything counted"), lesson.figure("compute_bound_from"))]
    if known.ceilings is not None and known.ceilings.bandwidth:
        for dtype, rows in ridge.of_ceilings(known.ceilings).items():
            label = t("this machine's own ridge in {dtype}, in rows", dtype=dtype)
            answers.append(measured(t, label, rows, of_ceilings(known.ceilings)))
    return number(
        t("From how many prompt tokens on does an H100 wait for its arithmetic and no longer for bytes?"),
        t("tokens"),
        (1, 100_000),
        answers,
        t(
            "Two bytes a weight and two operations for each row: with 16-bit weights rows and operations a byte are "
            "one number, and the weights alone would give {ridge}. The cache and the state that the pass writes are "
            "bytes too, so it takes a few tokens more.",
            ridge=t.number(lesson.figure("ridge"), 0),
        ),
    )


def _one_matrix(t: Words, known: Known) -> Asked:
    answers = [predicted(t, t("an H100, predicted"), lesson.figure("matrix_2048_over_1"))]
    here = known.matrix
    if here is not None:
        label = t("{k} × {n} with {rows} rows, measured", k=here.k, n=here.n, rows=t.number(here.rows))
        answers.append(measured(t, label, here.ratio, doubts.of_matrix(known)))
    return number(
        t("The matrix times one row takes 1. How long do 2,048 rows take on an H100?"),
        t("times"),
        (1, 10_000),
        answers,
        t("2,048 times the arithmetic, but the same bytes. Up to the knee the rows ride along for nothing."),
    )


def _state_and_kv(t: Words, known: Known) -> Asked:
    return number(
        t("From which context on does reading the cache move more bytes than the state does?"),
        t("tokens"),
        (10, 1_000_000),
        [predicted(t, t("counted from the model's shapes"), lesson.figure("kv_equals_state"))],
        t("This is a count, not a clock: bytes follow from the model's shapes, whatever the machine."),
    )


def _batch(t: Words, known: Known) -> Asked:
    alone, shared = lesson.figure("rate_1"), lesson.figure("rate_58")
    answers = [
        predicted(t, t("58 together, predicted"), shared),
        predicted(t, t("58 times one, if everything were shared"), alone * lesson.CROWD),
    ]
    if known.batch is not None:
        here = known.batch
        label = t("{model} here: {batch} together, one alone {alone}", model=here.model, batch=here.batch,
                  alone=t.number(here.alone))  # fmt: skip
        answers.append(measured(t, label, here.together, doubts.of_experiment(known.sweep)))
    return number(
        t(
            "One sequence alone gets {alone} tokens a second from an H100. How many do 58 get together?",
            alone=t.number(alone, 1),
        ),
        t("tokens/s"),
        (1, 100_000),
        answers,
        t(
            "The weights are shared, each sequence's own cache and state are not: that is the gap between the "
            "two numbers."
        ),
    )


def _misconceptions(t: Words, known: Known) -> Asked:
    compute = lesson.figure("compute_a100_h100")
    return number(
        t(
            "{sentence} Is that so? The compute of an H100 is {factor} times that of an A100, the card before it. How "
            "many times as many tokens a second does one sequence get?",
            sentence=t("“A card with three times the compute writes three times as fast.”"),
            factor=t.number(compute, 2),
        ),
        t("times"),
        (0.5, 20),
        [
            predicted(t, t("tokens a second, predicted"), lesson.figure("speed_a100_h100")),
            predicted(t, t("compute, by the data sheets"), compute),
        ],
        t(
            "The bandwidth grew from {before} to {after} TB/s, and a token waits for bytes. So the sentence is "
            "false. The page below has it and three more; each of them falls by a number.",
            before=t.number(lesson.figure("a100_tb_per_s"), 3),
            after=t.number(lesson.figure("h100_tb_per_s"), 2),
        ),
    )


def _still_open(t: Words, known: Known) -> Asked:
    answers = [
        Answer("predicted", t("weights in four bits"), f"× {t.number(lesson.figure('int4_gain'), 1)}"),
        Answer("predicted", t("three times the compute"), f"× {t.number(lesson.figure('triple_compute_gain'), 1)}"),
        Answer(
            "predicted",
            t("58 readers at once, for each of them"),
            f"× {t.number(lesson.figure('rate_58_each') / lesson.figure('rate_1'), 1)}",
        ),
    ]
    return choice(
        t("One reader alone waits for a text. What makes it come fastest?"),
        {
            "compute": t("three times the compute"),
            "batch": t("58 readers at once"),
            "bits": t("weights in four bits"),
        },
        ("bits",),
        answers,
        t(
            "Fewer bytes help whoever waits. A batch helps the server, not the one reader. (Not × 4: the four bits "
            "come with scales, and embedding and head keep their sixteen.)"
        ),
    )


_ASK: dict[str, Callable[[Words, Known], Asked]] = {
    "question": _question,
    "request": _request,
    "first-guess": _first_guess,
    "where-it-fails": _where_it_fails,
    "roofline": _roofline,
    "two-phases": two_phases.ask,
    "one-matrix": _one_matrix,
    "state-and-kv": _state_and_kv,
    "batch": _batch,
    "misconceptions": _misconceptions,
    "still-open": _still_open,
}
