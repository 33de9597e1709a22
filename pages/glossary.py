"""Words: every term of the lab in a sentence, and the formulas filled with the current numbers."""

from __future__ import annotations

import streamlit as st

from engine.errors import N_
from pages._lesson import formulas
from pages._lesson.glossary import TERMS
from pages._parts import session
from pages._parts.links import build_link

PAGES = {
    "steps": N_("Step by step"),
    "roofline": N_("Roofline"),
    "shapes": N_("Shapes"),
    "batch": N_("Batch and memory"),
    "memory": N_("KV and state"),
    "devices": N_("Devices"),
    "map": N_("How it got faster"),
    "levers": N_("Levers"),
    "machine": N_("This machine"),
}

t = session.words()
st.title(t("Words"))
st.markdown(
    t(
        "Every term of the lab, with its explanation. Wherever a word is underlined with dots or has a "
        "question mark beside it, the same explanation opens there."
    )
)
wanted = (
    st.text_input(t("Find a word"), key="glossary_find", value=st.query_params.get("term", "")[:60]).strip().lower()
)


def explanation(name: str, text: str) -> str:
    """The explanation without the term itself in front of it, which stands there in bold already."""
    head, colon, rest = text.partition("：" if t.language == "zh" else ": ")
    is_name = bool(colon and name) and len(head) < 40 and (head.lower() in name.lower() or name.lower() in head.lower())
    return rest[:1].upper() + rest[1:] if is_name else text


def way(page: str) -> str:
    """A link to the page where the term is at work, or nothing."""
    if page not in PAGES:
        return ""
    title = t(PAGES[page])
    return f" [→ {title}]({build_link(session.base_path(), page=page, language=t.language)})"


shown = sorted(
    (
        (t(term.name), explanation(t(term.name), t(term.text)) + way(term.page))
        for name, term in TERMS.items()
        if wanted in t(term.name).lower() or wanted in t(term.text).lower() or wanted == name
    ),
    key=lambda each: (each[0] or each[1]).lower(),
)
if not shown:
    st.info(t("No term of the lab has this in its name or explanation."))
with st.container(key="glossary"):
    st.markdown("\n".join(f"- **{name}**: {text}" if name else f"- {text}" for name, text in shown))
st.header(t("Formulas"))
formulas.show(t)
