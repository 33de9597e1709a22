"""The controls of the four prediction pages: seeded from the address, kept in it, read as one Scene."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from engine import hardware
from engine.measured_device import THIS_MACHINE
from pages._parts import misread, session, terms
from pages._parts import query as query_of
from pages._parts.scene import (
    CHOICES,
    CUSTOM,
    LIMITS,
    OWN,
    Scene,
    device_choices,
    model_choices,
    pack_config,
    parse_scene,
    read_names,
    stops,
    to_query,
    unpack_config,
)
from pages._parts.words import Words

PREFIX = "scene_"
CHOSEN = (*CHOICES, "model", "device", "before")
"""Controls that offer options by name."""


def seed(page: str, names: Sequence[str]) -> None:
    """Put the address's values into the controls when it is new: a first visit, Back, or a link typed in.

    What this session wrote itself comes back with later messages and is no news.
    """
    names = read_names(names)
    query = {name: value for name, value in st.query_params.to_dict().items() if name in names}
    written: list[dict[str, str]] = st.session_state.setdefault(f"{page}_written", [])
    if query in written:
        del written[: written.index(query) + 1]
        st.session_state[f"{page}_seen"] = query
    scene = st.session_state.get("scene", Scene())
    # An address left behind comes again with a change on its heels (a fast hand), or with none: then it was Back.
    went_back = bool(written) and query == st.session_state.get(f"{page}_seen") and current(names) == scene
    is_news = went_back or st.session_state.get(f"{page}_seen") != query
    if went_back:
        written.clear()
    st.session_state[f"{page}_seen"] = query
    if is_news and query:
        scene = parse_scene({**to_query(scene, names), **query})
        misread.say(session.words(), query_of.misread(scene, query))
        scene = replace(
            scene, config=scene.config if "config" in query else st.session_state.get("scene", scene).config
        )
    st.session_state["scene"] = scene
    other_language = session.language_changed(page)
    for name in names:
        if is_news or PREFIX + name not in st.session_state or not _is_choice(name, st.session_state[PREFIX + name]):
            st.session_state[PREFIX + name] = _as_widget(name, getattr(scene, name))
        elif other_language and name in CHOSEN:  # said again, the browser learns what it is called now
            st.session_state[PREFIX + name] = st.session_state[PREFIX + name]


def keep(page: str, names: Sequence[str]) -> Scene:
    """Remember the controls across pages, write them into the address unless they are as they came; return them."""
    scene = current(names)
    st.session_state["scene"] = scene
    plain = to_query(scene, names) == to_query(Scene(), names)
    query = {} if plain and not st.session_state[f"{page}_seen"] else to_query(scene, names)
    here = st.query_params.to_dict()
    known, written = read_names(names), st.session_state[f"{page}_written"]
    said = {name: value for name, value in here.items() if name in known}
    # What the browser says it may have shown before the last that was written reached it: that would be there to stay.
    if said != query or (written and written[-1] != query):
        others = {name: value for name, value in here.items() if name not in known}
        st.query_params.from_dict({**query, **others})
        written.append(query)
    return scene


def current(names: Sequence[str]) -> Scene:
    """What the controls say now; what this page has no control for stays as it was."""
    said = {name: st.session_state[PREFIX + name] for name in read_names(names) if PREFIX + name in st.session_state}
    said = {name: ",".join(value) if isinstance(value, list) else value for name, value in said.items()}
    scene: Scene = st.session_state["scene"]
    return replace(scene, **{name: value for name, value in said.items() if _is_choice(name, value)})


def _is_choice(name: str, value: Any) -> bool:
    """Not so for an option's name in a language just left: Streamlit hands on what it no longer knows."""
    return name not in CHOSEN or getattr(parse_scene({name: value}), name) == value


def choose(**values: Any) -> None:
    """Set controls from a button. Call from a callback."""
    for name, value in values.items():
        st.session_state[PREFIX + name] = _as_widget(name, value)
    joined = {name: ",".join(value) if isinstance(value, list) else value for name, value in values.items()}
    st.session_state["scene"] = replace(st.session_state["scene"], **joined)


def _as_widget(name: str, value: Any) -> Any:
    is_list = name in ("models", "runs") and isinstance(value, str)
    return [each for each in value.split(",") if each] if is_list else value


def slider(t: Words, name: str, label: str, explanation: str) -> None:
    """A slider over whole numbers, even on a logarithmic scale; a link may set any number in its range."""
    arrived: set[int] = st.session_state.setdefault(f"stops_{name}", set())
    arrived.add(st.session_state[PREFIX + name])
    options = sorted({*stops(name), *arrived})
    st.select_slider(label, options, key=PREFIX + name, format_func=lambda each: t.number(each, 0), help=t(explanation))


def model(t: Words) -> None:
    """The model: one of the catalogue, or a pasted config.json."""

    def take_config() -> None:
        st.session_state[PREFIX + "config"] = pack_config(st.session_state["pasted"])

    st.selectbox(
        t("Model"),
        model_choices(),
        key=PREFIX + "model",
        format_func=lambda each: t("A config.json of your own") if each == CUSTOM else each,
    )
    if st.session_state[PREFIX + "model"] != CUSTOM:
        return
    packed = st.session_state[PREFIX + "config"]
    if packed and "pasted" not in st.session_state:
        st.session_state["pasted"] = json.dumps(json.loads(unpack_config(packed)), indent=1)
    st.text_area(
        "config.json",
        key="pasted",
        height=140,
        on_change=take_config,
        help=t("Paste the config.json of a checkpoint. It is only read for its dimensions and travels in the link."),
    )
    if not packed:
        if st.session_state.get("pasted", "").strip():
            st.error(t("This is not a JSON object; a config.json is one, between braces."), icon=":material/error:")
        else:
            st.caption(t("Paste a config.json above; until then the lesson's model is shown."))


def device(t: Words, name: str = "device", label: str | None = None) -> None:
    """The device: this machine, a listed one, or one's own by three numbers."""
    st.selectbox(
        label or t("Device"), device_choices(), key=PREFIX + name, format_func=lambda each: device_name(t, each)
    )
    if st.session_state[PREFIX + name] == CUSTOM:
        first, second, third = st.columns(3)
        _amount(first, "TFLOP/s", "tflops", t("Dense multiplication in the format the weights are multiplied in."))
        _amount(second, "GB/s", "gbs", t("Bandwidth of the main memory, as in the data sheet."))
        _amount(third, "GB", "gb", t("Memory in units of 1e9 bytes."))


def device_name(t: Words, device_id: str) -> str:
    """A device as its maker writes it."""
    if device_id == THIS_MACHINE:
        return t("This machine")
    return t("A device of your own") if device_id == CUSTOM else hardware.load(device_id).name


def _amount(place: Any, label: str, name: str, explanation: str) -> None:
    low, high = LIMITS[name]
    place.number_input(label, float(low), float(high), key=PREFIX + name, help=explanation, format="%g")


def formats(t: Words) -> None:
    """What weights, KV cache and recurrent state are held in."""
    _formats(t, {"weights": terms.WEIGHTS, "kv": terms.KV_CACHE, "state": terms.STATE})


def cache_formats(t: Words) -> None:
    """What KV cache and recurrent state are held in."""
    _formats(t, {"kv": terms.KV_CACHE, "state": terms.STATE})


def _formats(t: Words, explained: dict[str, str]) -> None:
    labels = {"weights": t("Weights"), "kv": t("KV cache"), "state": t("State")}
    for place, (name, explanation) in zip(st.columns(len(explained)), explained.items(), strict=True):
        place.selectbox(
            labels[name],
            CHOICES[name],
            key=PREFIX + name,
            help=t(explanation),
            format_func=lambda each: t("as published") if each == OWN else each,
        )


def preset(t: Words) -> None:
    """Which convention counts: the lesson's, or this engine's."""
    shown = {"lesson": t("the lesson's"), "engine": t("this engine's")}
    st.segmented_control(
        t("Counted by convention"),
        CHOICES["preset"],
        key=PREFIX + "preset",
        required=True,
        format_func=shown.__getitem__,
        help=t(terms.CONVENTION),
    )
