"""How it got faster: the map, three questions to any claim, the model so small that starting operations binds."""

from __future__ import annotations

import streamlit as st

from engine import lesson
from pages._lesson import evidence, small_model
from pages._lesson.accelerations import MAP, Acceleration
from pages._parts import session
from pages._parts.words import Words

t = session.words()


def entry(t: Words, number: int, each: Acceleration) -> None:
    """One step of the map, with the number that forced the next."""
    filled = {name: t.number(lesson.figure(name), digits) for name, digits in each.figures.items()}
    solved, stuck = t("solved"), t("stuck at")
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{number}. {t(each.name)}**")
        st.markdown(f":green-badge[{solved}] {t(each.solved, **filled)}")
        st.markdown(f":orange-badge[{stuck}] {t(each.stuck, **filled)}")
        if each.page is None:
            st.caption(t("Nothing to try here yet."))
        else:
            query = {**each.query, "lang": t.language}
            st.page_link(
                f"{each.page or 'live_run'}.py", label=t("Try it"), icon=":material/ads_click:", query_params=query
            )


st.title(t("How it got faster"))
st.markdown(
    t(
        "Every step was forced by a number of the step before. The numbers are those of Qwen3.8-27B on an "
        "H100, computed under the lesson's convention: bounds, not measurements."
    )
)
for number, each in enumerate(MAP, 1):
    entry(t, number, each)
small_model.show(t)
evidence.questions(t)
evidence.last_words(t)
