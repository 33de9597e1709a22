"""The controls of *Live run*: seeded from the address, kept in it, read as one View and one RunRequest."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import streamlit as st

from engine import broker, checkpoint
from engine.errors import N_
from engine.ledger.convention import LATENT_FORMS
from engine.record import Run, RunRequest
from engine.request import CLOCKS, LAUNCHES
from pages._parts import choices as models
from pages._parts import misread, session, terms
from pages._parts import query as query_of
from pages._parts.folded import folded
from pages._parts.links import DTYPES, KV, LIMITS, SAME, WEIGHTS, View, parse_view, to_query
from pages._parts.words import Words

EXAMPLES = {
    N_("The lesson's sentence"): "小明把苹果给了",
    N_("A question"): "Why is the sky blue?",
    N_("Four tokens"): "Once upon a time",
    N_("A story"): "Once upon a time, in a village by the sea, there lived an old clockmaker who",
    N_("A long prompt"): (
        "A library keeps ten thousand books in its cellar. Each morning the librarian carries every one "
        "of them upstairs, "
        "reads a single word, and carries them all down again. When a hundred visitors ask at once, the "
        "books still come up "
        "only once, and each visitor gets a word. When one visitor asks for a hundred words, the books "
        "come up a hundred times. "
    )
    * 4
    + "So what would make this library faster?",
}
# What stands in the box at first, by the page's language: a text the small demo model can go on with.
FIRST_PROMPTS = {"en": EXAMPLES["A story"], "zh": EXAMPLES["The lesson's sentence"]}
MORE = ("temperature", "seed", "top_k", "top_p", "min_p", "dtype", "weights", "kv", "latent", "clock", "launches")
LATE_S = 2.0
_NAMES = [field.name for field in fields(View)]
_CHOSEN = ("model", "dtype", "weights", "kv", "latent", "clock", "launches")


@dataclass(frozen=True)
class _Address:
    """The controls in the address as this session last knew them, and what stood there before it wrote them."""

    query: dict[str, str]
    before: dict[str, str]
    written_at: float

    def is_news(self, query: dict[str, str]) -> bool:
        """Whether the reader changed the address: by Back, by typing, by a link."""
        if query == self.query:
            return False
        # A message sent before what we wrote had reached the browser still brings the old address along.
        is_late = query == self.before and time.monotonic() - self.written_at < LATE_S
        return not is_late


def seed(t: Words, run: Run | None) -> None:
    """Put the address's values into the controls when they are news; what this session wrote itself is none.

    A link to a run without controls of its own starts from that run's request. The first prompt is in the page's
    language, and follows it until the reader writes another.
    """
    query = {name: value for name, value in st.query_params.to_dict().items() if name in _NAMES}
    address: _Address | None = st.session_state.get("address")
    is_news = address is None or address.is_news(query)
    if is_news:
        st.session_state["address"] = _Address(query, query, 0.0)
    view = st.session_state.get("view", View())
    is_entering = _NAMES[0] not in st.session_state  # another page's script ran last, and the address lost its controls
    if is_news:
        view = parse_view({**to_query(view), **query} if is_entering else query)
    if "view" not in st.session_state and run is not None and not query:
        view = _of_request(run.request)
        st.session_state.setdefault("kept_prompt", run.request.prompt)
    known = set(models.choices())
    if view.model not in known:
        view = replace(view, model=View().model if View().model in known else sorted(known)[0])
    st.session_state["view"] = view
    if is_news:
        misread.say(t, query_of.misread(view, query))
    other_language = session.language_changed("live_run")
    for name, value in asdict(view).items():
        if is_news or name not in st.session_state or not _is_choice(name, st.session_state[name]):
            st.session_state[name] = value
        elif other_language and name in _CHOSEN:  # said again, the browser learns what it is called now
            st.session_state[name] = st.session_state[name]
    if "prompt" not in st.session_state:
        st.session_state["prompt"] = st.session_state.get("kept_prompt", FIRST_PROMPTS[t.language])
    if other_language and st.session_state["prompt"] in FIRST_PROMPTS.values():
        st.session_state["prompt"] = FIRST_PROMPTS[t.language]


def keep(view: View) -> None:
    """Remember the controls across pages, and write them into the address unless it says the same already."""
    st.session_state["view"] = view
    st.session_state["kept_prompt"] = st.session_state["prompt"]
    here = st.query_params.to_dict()
    written = {name: value for name, value in here.items() if name in _NAMES}
    # What the browser says it may have shown before the last that was written reached it: that would be there to stay.
    under_way = st.session_state["address"]
    is_late = time.monotonic() - under_way.written_at < LATE_S and parse_view(under_way.query) != view
    if parse_view(written) != view or is_late:
        query = to_query(view)
        others = {name: value for name, value in here.items() if name not in _NAMES}
        st.query_params.from_dict({**query, **others})
        st.session_state["address"] = _Address(query, written, time.monotonic())


def _of_request(request: RunRequest) -> View:
    view = View(
        model=request.model,
        chat=request.chat,
        length=request.max_new_tokens,
        batch=request.batch,
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
        dtype=request.dtype or View().dtype,
        weights=request.weights or SAME,
        kv=request.kv or SAME,
        latent=request.latent,
        clock=request.clock,
        launches=request.launches,
    )
    return parse_view(to_query(view))  # a run from the command line may lie outside what the controls can hold


def draw(t: Words, *, is_running: bool) -> View:
    """Draw every control and return what they say now.

    Args:
        is_running: the reader's own run is going on, and says itself what it fetches.
    """
    _prompt(t)
    choices = models.choices()
    st.selectbox(t("Model"), list(choices), key="model", format_func=lambda each: _model_label(t, choices[each]))
    chosen = choices[current().model]
    if not is_running and not chosen.fetched:
        st.caption(t("Not on this machine yet: the first run fetches it, once."))
    with st.container(key="sizes"):
        left, right = st.columns(2)
    _number(left, t("Length"), "length", t(terms.LENGTH))
    _number(right, t("Batch"), "batch", t(terms.BATCH))
    _more(t, chosen)
    return current()


def current() -> View:
    """What the controls say now."""
    said = {name: st.session_state[name] for name in _NAMES}
    known = asdict(st.session_state.get("view", View()))
    return View(**{name: value if _is_choice(name, value) else known[name] for name, value in said.items()})


def _is_choice(name: str, value: Any) -> bool:
    """Not so for an option's name in a language just left: Streamlit hands on what it no longer knows."""
    if name == "model":
        return value in models.choices()
    return name not in _CHOSEN or getattr(parse_view({name: value}), name) == value


def request_of(view: View) -> RunRequest:
    """What pressing Run asks for."""
    return view.request(st.session_state["prompt"])


def _prompt(t: Words) -> None:
    def take_example() -> None:
        chosen = st.session_state["example"]
        if chosen:
            st.session_state["prompt"] = EXAMPLES[chosen]
            st.session_state["example"] = None

    st.text_area(t("Prompt"), key="prompt", height=92)
    st.pills(
        t("Examples"),
        list(EXAMPLES),
        format_func=t,
        key="example",
        on_change=take_example,
        label_visibility="collapsed",
        wrap=True,
    )
    st.toggle(t("Chat"), key="chat", help=t(terms.CHAT))


def _model_label(t: Words, choice: checkpoint.ModelChoice) -> str:
    return t("{model} (random weights)", model=choice.id) if choice.weights == "random" else choice.label


def _number(place: Any, label: str, name: str, explanation: str, step: float | None = None) -> None:
    low, high = LIMITS[name]
    kind = type(getattr(View(), name))
    place.number_input(label, kind(low), kind(high), step=kind(step or 1), key=name, help=explanation)


def _more(t: Words, choice: checkpoint.ModelChoice) -> None:
    """What few need; a link that sets any of it opens it."""
    device = broker.current().machine().device
    has_queue = device is not None and device.kind == "cuda"
    no_choice = [] if choice.has_latent_attention else ["latent"]
    no_choice += [] if device is None or has_queue else ["clock", "launches"]
    for name in no_choice:
        st.session_state[name] = getattr(View(), name)
    is_set = any(st.session_state[name] != getattr(View(), name) for name in MORE)
    with folded(t("More: sampling and number format"), "more", expanded=is_set) as is_open:
        if is_open:
            _sampling(t)
            if choice.has_latent_attention:
                _latent_form(t)
            if has_queue:
                _queue(t)


def _sampling(t: Words) -> None:
    left, right = st.columns(2)
    _number(left, t("Temperature"), "temperature", t(terms.TEMPERATURE), 0.1)
    _number(right, t("Seed"), "seed", t(terms.SEED))
    _number(left, "top-k", "top_k", t(terms.TOP_K), 10)
    _number(right, "top-p", "top_p", t(terms.TOP_P), 0.05)
    _number(left, "min-p", "min_p", t(terms.MIN_P), 0.05)
    right.selectbox(t("Number format"), DTYPES, key="dtype", help=t(terms.DTYPE),
                    format_func={"float32": "fp32", "bfloat16": "bf16"}.__getitem__)  # fmt: skip
    for place, label, formats, key, explanation in (
        (left, t("Weights"), WEIGHTS, "weights", t(terms.WEIGHT_FORMAT)),
        (right, t("KV cache"), KV, "kv", t(terms.KV_FORMAT)),
    ):
        place.selectbox(
            label,
            formats,
            key=key,
            help=explanation,
            format_func=lambda name: t("the same") if name == SAME else name,
        )


def _latent_form(t: Words) -> None:
    """How latent attention reads its cache: a choice only where the model has it."""
    labels = {"absorbed": t("absorbed"), "re-expanded": t("re-expanded")}
    st.selectbox(
        t("Latent attention"), LATENT_FORMS, key="latent", format_func=labels.__getitem__, help=t(terms.LATENT_FORM)
    )


def _queue(t: Words) -> None:
    """How steps are timed and started: a choice only where the device has a queue of its own."""
    left, right = st.columns(2)
    clocks = {"synchronised": t("waited for"), "free-running": t("freely, greedy")}
    left.selectbox(t("Steps run"), CLOCKS, key="clock", format_func=clocks.__getitem__, help=t(terms.CLOCK))
    launches = {"eager": t("op by op"), "graph": t("as a graph"), "compiled": t("as a graph, compiled")}
    right.selectbox(t("Started"), LAUNCHES, key="launches", format_func=launches.__getitem__, help=t(terms.LAUNCHES))
