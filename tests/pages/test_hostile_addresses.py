"""Any text in any parameter of any page: no exception, at most one sentence about it, and never the text as markup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts.links import View
from pages._parts.query import misread
from pages._parts.scene import Scene, parse_scene

Open = Callable[..., AppTest]
PAGES = (
    "live_run.py", "roofline.py", "shapes.py", "sweeps.py", "batch.py", "memory.py", "devices.py", "machine.py"
)  # fmt: skip
BOUND = {
    "shapes.py": ("matrix_of", "matrix", "held_in", "rows", "drawn"),
    "sweeps.py": ("sweep_model", "axis", "up_to", "at_context", "at_batch", "computed_in", "weights_in"),
}
"""Controls that Streamlit keeps in the address itself."""
NAMES = sorted({field.name for field in (*fields(View), *fields(Scene))} | {"v", *sum(BOUND.values(), ())})
HOSTILE = {
    "empty": "",
    "html": "<img src=x onerror=alert(1)>",
    "markdown": "[x](javascript:alert(1)) :red[y] $z$",
    "long": "9" * 5_000,
    "unicode": "\u202e小明\u0000\U0001f600",
    "negative": "-1",
    "nan": "NaN",
    "infinite": "1e999",
    "path": "../../etc/passwd",
    "template": "{0.__class__}{names}%s",
}


CASES = [(page, name) for page in PAGES for name in HOSTILE if page in PAGES[:2] or name in ("html", "long")]


@pytest.mark.parametrize(("page", "name"), CASES)
def test_a_page_survives_it_in_every_parameter_at_once(page: str, name: str, open_page: Open) -> None:
    text = HOSTILE[name]
    test = open_page(page, lang="en", **dict.fromkeys(NAMES, text))
    assert not test.exception
    assert test.title
    assert len(test.error) <= 1
    told = [each.value for each in test.warning if "cannot be" in each.value]
    assert len(told) == (page != "machine.py")
    assert not any(text in each for each in told if text)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"device": "h1000", "prompt": "64"}, ["device"]),
        ({"prompt": "0", "batch": "1e9", "context": "4096.0"}, ["prompt", "batch"]),
        ({"models": "Qwen/Qwen3-32B,nobody/knows"}, ["models"]),
        ({"model": "Qwen/Qwen3-32B", "runs": "keptRun00001", "preset": "engine"}, []),
    ],
)
def test_what_could_not_be_taken_as_it_stands_is_named(query: dict[str, str], names: list[str]) -> None:
    assert misread(parse_scene(query), query) == names


def test_a_model_that_is_not_here_is_named(open_page: Open) -> None:
    test = open_page(lang="en", model="nobody/knows", length="7")
    assert [each.value for each in test.warning if "says of model cannot be" in each.value]
    assert test.number_input(key="length").value == 7


@pytest.mark.parametrize("page", BOUND)
def test_a_control_kept_by_streamlit_is_named_too_and_a_value_it_has_is_taken(page: str, open_page: Open) -> None:
    name = BOUND[page][0]
    told = [each.value for each in open_page(page, lang="en", **{name: "tiny-3.7m"}).warning]
    assert not [each for each in told if "cannot be" in each]
    test = open_page(page, lang="en", **{name: "nobody/knows", BOUND[page][2]: "4e9"})
    [told_] = [each.value.replace("\\", "") for each in test.warning if "cannot be" in each.value]
    assert f"says of {name}, {BOUND[page][2]} cannot be" in told_
    assert not [each for each in test.run().warning if "cannot be" in each.value], "once"


def test_a_step_that_a_run_has_not_is_named(open_page: Open, kept_run: str) -> None:
    test = open_page("steps.py", lang="en", run=kept_run, at="99")
    assert [each.value for each in test.warning if "says of at cannot be" in each.value]
    assert not open_page("steps.py", lang="en", run=kept_run, at="4").warning


@pytest.mark.parametrize("page", PAGES[:2])
def test_a_parameter_said_twice_is_no_fault(page: str, open_page: Open) -> None:
    test = open_page(page, lang="en", batch=["2", "3"], device=["h100-sxm", "a100-sxm4-80gb"])
    assert not test.exception
