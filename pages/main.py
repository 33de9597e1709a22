"""The entrypoint, run before every page: language, the table of pages, the run in the address.

It lies inside pages/ because a script beside a pages/ folder loses the first deep link after a restart.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages._lesson import rail
from pages._parts import misread, session
from pages._parts.links import parse_language

HERE = Path(__file__).parent / "_parts"

unknown_language = "lang" in st.query_params and parse_language(st.query_params) is None
t = session.choose_language()
st.set_page_config(page_title="Roofline Lab", page_icon=str(HERE / "icon.svg"), layout="wide")
st.html(HERE / "lab.css")
session.keep_run_in_address()

page = st.navigation(
    [
        st.Page("live_run.py", title=t("Live run"), icon=":material/timeline:", default=True),
        st.Page("path.py", title=t("The path"), icon=":material/hiking:", url_path="path"),
        st.Page("steps.py", title=t("Step by step"), icon=":material/footprint:", url_path="steps"),
        st.Page("roofline.py", title=t("Roofline"), icon=":material/show_chart:", url_path="roofline"),
        st.Page("shapes.py", title=t("Shapes"), icon=":material/view_column:", url_path="shapes"),
        st.Page("batch.py", title=t("Batch and memory"), icon=":material/stacked_bar_chart:", url_path="batch"),
        st.Page("sweeps.py", title=t("Live sweeps"), icon=":material/stacked_line_chart:", url_path="sweeps"),
        st.Page("memory.py", title=t("KV and state"), icon=":material/database:", url_path="memory"),
        st.Page("levers.py", title=t("Levers"), icon=":material/tune:", url_path="levers"),
        st.Page("devices.py", title=t("Devices"), icon=":material/developer_board:", url_path="devices"),
        st.Page("map.py", title=t("How it got faster"), icon=":material/route:", url_path="map"),
        st.Page("machine.py", title=t("This machine"), icon=":material/memory:", url_path="machine"),
        st.Page("glossary.py", title=t("Words"), icon=":material/menu_book:", url_path="glossary"),
    ],
    expanded=True,
)
with st.sidebar:
    session.language_switch(t)
    st.caption(t("How long does a language model take to read a text and to write one, and why? Here you watch it."))
misread.say(t, ["lang"] if unknown_language else [])
rail.show(t, page.url_path)
page.run()
