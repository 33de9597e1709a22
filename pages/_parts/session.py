"""What belongs to one visitor: language, owner, the run on show. All of it in Streamlit's session state."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

import streamlit as st

from pages._parts.guard import OWNER_COOKIE
from pages._parts.links import parse_language, parse_run
from pages._parts.words import LANGUAGES, Words


def words() -> Words:
    """The words of this session's language."""
    return Words(st.session_state.get("language", "en"))


def choose_language() -> Words:
    """Settle this session's language: the address first, then the reader's earlier choice, then the browser's."""
    asked = parse_language(st.query_params)
    known = st.session_state.get("language")
    if asked is None and known is None:
        known = "zh" if (st.context.locale or "").lower().startswith("zh") else "en"
    st.session_state["language"] = asked or known
    if asked is None and st.session_state.get("language_in_address"):
        st.query_params["lang"] = st.session_state["language"]  # a page switch drops it
    st.session_state["language_in_address"] = "lang" in st.query_params
    return words()


def language_changed(page: str) -> bool:
    """Whether a page's controls were last drawn in another language."""
    before = st.session_state.get(f"{page}_language", words().language)
    st.session_state[f"{page}_language"] = words().language
    return bool(before != words().language)


def language_switch(t: Words) -> None:
    """The control in the sidebar."""

    def choose() -> None:
        chosen = st.session_state["language_choice"] or t.language
        st.session_state["language"] = chosen
        st.query_params["lang"] = chosen

    st.session_state["language_choice"] = t.language
    st.segmented_control(
        t("Language"),
        list(LANGUAGES),
        format_func=LANGUAGES.__getitem__,
        key="language_choice",
        on_change=choose,
        required=True,
    )


def owner() -> str:
    """Who this visitor is, for "one run each": the cookie the guard gave, or this session's own secret."""
    cookie = st.context.cookies.get(OWNER_COOKIE, "")
    if 20 <= len(cookie) <= 64:
        return cookie
    return str(st.session_state.setdefault("owner", secrets.token_urlsafe(24)))


def keep_run_in_address() -> None:
    """The run on show survives a page switch and Back: the address decides, else the session reminds it."""
    if "run" in st.query_params:
        st.session_state["run_id"] = parse_run(st.query_params)
    elif st.session_state.get("run_id"):
        st.query_params["run"] = st.session_state["run_id"]


def show_run(run_id: str) -> None:
    """Make this the run on show. Call from a callback."""
    st.session_state["run_id"] = run_id
    st.query_params["run"] = run_id


def address() -> str:
    """Scheme, host and base path of the lab as this browser reached it."""
    parts = urlsplit(st.context.url or "http://localhost")
    return f"{parts.scheme}://{parts.netloc}{base_path()}"


def base_path() -> str:
    """The path the lab is mounted under: empty, or with a leading slash."""
    configured = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"/{configured}" if configured else ""
