"""Words: every term of the lab in a sentence, and the formulas filled with the current numbers."""

from __future__ import annotations

import streamlit as st

from engine import broker
from engine.errors import N_
from pages._lesson import formulas
from pages._lesson.glossary import TERMS
from pages._lesson.plain_terms import Term
from pages._parts import ridge_words, session
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
COLONS = {"en": ": ", "zh": "："}

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
    head, colon, rest = text.partition(COLONS[t.language])
    is_name = bool(colon and name) and len(head) < 40 and (head.lower() in name.lower() or name.lower() in head.lower())
    return rest[:1].upper() + rest[1:] if is_name else text


def way(page: str) -> str:
    """A link to the page where the term is at work, or nothing."""
    if page not in PAGES:
        return ""
    title = t(PAGES[page])
    return f" [→ {title}]({build_link(session.base_path(), page=page, language=t.language)})"


def entry(name: str, term: Term) -> str:
    """A term's explanation; a ridge is a number too, so it says whose and why there are several."""
    text = explanation(t(term.name), t(term.text))
    if name == "ridge":
        machine = ridge_words.machine(t, broker.current().machine().ceilings)
        text = t.paragraph([text, ridge_words.card(t), machine, ridge_words.why(t)])
    return text + way(term.page)


def is_wanted(name: str, term: Term) -> bool:
    """Whether what was typed is a term's id, or stands in its name, in its other names or in its explanation."""
    written = (term.name, *term.also, term.text)
    return wanted == name or any(wanted in t(each).lower() for each in written)


shown = sorted(
    ((t(term.name), entry(name, term)) for name, term in TERMS.items() if is_wanted(name, term)),
    key=lambda each: each[0].lower(),
)
if not shown:
    st.info(t("No term of the lab has this in its name or explanation."))
with st.container(key="glossary"):
    st.markdown("\n".join(f"- **{name}**{COLONS[t.language]}{text}" for name, text in shown))
st.header(t("Formulas"))
formulas.show(t)
