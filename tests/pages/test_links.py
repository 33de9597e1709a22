"""Views from addresses: anything may be typed there, and what the lab writes comes back the same."""

from __future__ import annotations

from dataclasses import fields
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.ledger.convention import LATENT_FORMS
from engine.request import CLOCKS, LAUNCHES, check
from pages._parts.links import DTYPES, KV, LIMITS, View, build_link, parse_language, parse_run, parse_view, to_query

NAMES = [field.name for field in fields(View)]
anything = st.one_of(
    st.text(), st.floats().map(str), st.integers().map(str), st.none(), st.lists(st.text(), max_size=2)
)
views = st.builds(
    View,
    model=st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).filter(lambda name: ".." not in name),
    chat=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    kv=st.sampled_from(KV),
    latent=st.sampled_from(LATENT_FORMS),
    clock=st.sampled_from(CLOCKS),
    launches=st.sampled_from(LAUNCHES),
    **{
        name: st.integers(int(low), int(high)) if isinstance(getattr(View(), name), int) else st.floats(low, high)
        for name, (low, high) in LIMITS.items()
    },
)


@settings(deadline=None)
@given(st.dictionaries(st.one_of(st.sampled_from([*NAMES, "run", "lang"]), st.text()), anything))
def test_no_address_is_too_hostile(query: dict[str, object]) -> None:
    view = parse_view(query)
    for name, (low, high) in LIMITS.items():
        assert low <= getattr(view, name) <= high
        assert type(getattr(view, name)) is type(getattr(View(), name))
    assert view.dtype in DTYPES
    assert "/.." not in f"/{view.model}"
    parse_run(query)
    parse_language(query)
    check(view.request("a"))  # every view can be asked for


@settings(deadline=None)
@given(views)
def test_a_written_view_reads_back_the_same(view: View) -> None:
    assert parse_view(to_query(view)) == view


@settings(deadline=None)
@given(views)
def test_a_link_says_every_value(view: View) -> None:
    link = build_link("http://lab:8501/base/", view=view, language="zh")
    query = dict(parse_qsl(urlsplit(link).query))
    assert set(NAMES) | {"v", "lang"} == set(query)
    assert parse_view(query) == view


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("length", "99999999", 2048),
        ("length", "-3", 1),
        ("length", "12.9", 12),
        ("length", "nan", 64),
        ("length", "1e999", 64),
        ("temperature", "1e6", 2.0),
        ("seed", "-1", 0),
        ("chat", "yes", False),
        ("chat", "1", True),
        ("dtype", "pickle", "float32"),
        ("kv", "q4_0", "same"),
        ("kv", "int8", "int8"),
        ("clock", "sundial", "synchronised"),
        ("launches", "rockets", "eager"),
        ("model", "../../etc/passwd", "smollm2-135m"),
        ("model", "<script>", "smollm2-135m"),
    ],
)
def test_odd_values_are_clamped_or_left_at_their_default(name: str, raw: str, expected: object) -> None:
    assert getattr(parse_view({name: raw}), name) == expected


@pytest.mark.parametrize(
    "run", ["", "short", "../../../../x", "abcdefghijklm", "<b>abcdefgh", "abcdefghijkl\n", "ａbcdefghijkl"]
)
def test_what_no_run_is_called_is_no_run(run: str) -> None:
    assert parse_run({"run": run}) is None


def test_a_run_link() -> None:
    assert build_link("http://lab/", run="AbCdEfGhIjK_", language="en") == "http://lab/?run=AbCdEfGhIjK_&lang=en"
    assert build_link("http://lab", page="machine") == "http://lab/machine"
