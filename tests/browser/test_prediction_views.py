"""The prediction pages in a real browser: each from its link, dragged and pressed, in both themes and languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import overflow, settled
from playwright.sync_api import Browser, Page, expect
from web_server import Lab, new_home, serve

pytestmark = pytest.mark.browser

LINKS = {
    "roofline": "model=Qwen/Qwen3-32B&context=32768&batch=2",
    "devices": "before=h100-sxm&device=h200-sxm",
    "batch": "batch=59",
    "memory": "models=Qwen/Qwen3.8-27B,mistralai/Mistral-7B-v0.1&count=moved",
}
SAID = {
    "roofline": ("At a context of 32,768 at most 1 fit", "上下文为 32,768 时最多放得下 1 个"),
    "devices": ("× 1.43", "× 1.43"),
    "batch": ("at most 58 fit", "最多放得下 58 个"),
    "memory": ("4,608", "4,608"),
}


@pytest.fixture(scope="module")
def lab(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server of this file's own, just started: the first thing it is asked for is a deep link."""
    with serve(new_home(tmp_path_factory.mktemp("predict") / "home", demo_home)) as running:
        yield running


def _open(page: Page, lab: Lab, path: str, query: str, language: str = "en") -> None:
    page.goto(f"{lab.url}/{path}?{query}&lang={language}")
    _drawn(page)


def _drawn(page: Page) -> None:
    # Plotly is 5 MB of script: a machine that does much else takes its time over it, once a visitor.
    expect(page.locator(".rl-plot[data-drawn]").first).to_be_visible(timeout=90_000)
    settled(page)


def _point(page: Page, group: str) -> list[float]:
    found = f"document.querySelector('.rl-plot').data.find(trace => trace.legendgroup === '{group}')"
    return list(json.loads(page.evaluate(f"JSON.stringify([{found}.x[0], {found}.y[0]])")))


@pytest.mark.parametrize(
    ("width", "language", "theme"), [(1400, "en", "light"), (390, "en", "dark"), (390, "zh", "light")]
)
def test_every_page_from_its_link(width: int, language: str, theme: str, browser: Browser, lab: Lab) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    for path, query in LINKS.items():
        _open(page, lab, path, query, language)
        expect(page.get_by_text(SAID[path][language == "zh"]).first).to_be_visible()
        assert overflow(page) <= 0, path
        ink = page.evaluate("document.querySelector('.rl-plot').layout.font.color")
        text = page.evaluate(
            "getComputedStyle(document.querySelector('.rl-figure')).getPropertyValue('--st-text-color').trim()"
        )
        assert ink == text
        assert all(
            page.locator(".rl-plot").evaluate_all(
                "plots => plots.map(plot => plot.getAttribute('aria-label').length > 10)"
            )
        )
    assert not problems
    context.close()


def test_dragging_moves_the_point_and_keeps_the_chart(page: Page, lab: Lab) -> None:
    _open(page, lab, "roofline", "prompt=4&batch=57")
    page.evaluate("window.chartOfBefore = document.querySelector('.rl-plot .main-svg')")
    before = _point(page, "prefill")
    thumb = page.locator(".st-key-scene_prompt input[type=range]")
    thumb.focus()
    for _ in range(3):
        thumb.press("ArrowRight")
    page.wait_for_function("location.search.includes('prompt=7&')")
    _drawn(page)
    page.wait_for_function(
        f"document.querySelector('.rl-plot').data.find(t => t.legendgroup === 'prefill').x[0] > {1.5 * before[0]}"
    )
    assert page.evaluate("window.chartOfBefore === document.querySelector('.rl-plot .main-svg')")
    batch = page.locator(".st-key-scene_batch input[type=range]")
    batch.focus()
    batch.press("ArrowRight")
    page.wait_for_function("location.search.includes('batch=58&')")
    settled(page)
    expect(page.get_by_text("do not hold this")).to_have_count(0)
    batch.press("ArrowRight")
    expect(page.get_by_text("at most 58 fit")).to_be_visible()


def test_the_address_follows_changes_that_overtake_each_other(page: Page, lab: Lab) -> None:
    """The browser may say an old address along with a new change; what the lab wrote meanwhile arrives after that."""
    _open(page, lab, "batch", "batch=30")
    thumb = page.locator(".st-key-scene_batch input[type=range]")
    thumb.focus()
    for key in 3 * ["End", "Home", "End", "Home", "ArrowRight", "End", "Home", "End"]:
        thumb.press(key)
        page.wait_for_timeout(120)
    page.wait_for_function("new URLSearchParams(location.search).get('batch') === '1024'")
    thumb.press("Home")
    page.wait_for_timeout(120)
    thumb.press("ArrowRight")
    page.wait_for_function("new URLSearchParams(location.search).get('batch') === '2'")
    settled(page)
    assert thumb.get_attribute("aria-valuetext") == "2"


def test_terms_and_tasks_are_within_reach_of_the_keyboard(page: Page, lab: Lab) -> None:
    _open(page, lab, "roofline", "batch=1")
    term = page.get_by_role("button", name="π", exact=True)
    term.focus()
    term.press("Enter")
    expect(page.get_by_text("989.5 TFLOP/s")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_text("Four things to try").click()
    page.get_by_role("button", name="T = 2,048").press("Enter")
    page.wait_for_function("location.search.includes('prompt=2048')")
    expect(page.get_by_text("106.9 ms").first).to_be_visible()
    legend = page.locator(".rl-figure-legend button").first
    legend.press("Enter")
    expect(legend).to_have_attribute("aria-pressed", "false")


def test_back_returns_to_the_values_before_and_the_next_page_keeps_the_model(page: Page, lab: Lab) -> None:
    _open(page, lab, "batch", "model=Qwen/Qwen3-32B&batch=4")
    slider = page.locator(".st-key-scene_batch input[type=range]")
    slider.press("ArrowRight")
    page.wait_for_function("location.search.includes('batch=5&')")
    settled(page)
    page.go_back()
    expect(slider).to_have_attribute("aria-valuetext", "4")
    page.get_by_role("link", name="Roofline").click()
    _drawn(page)
    expect(page.get_by_role("combobox", name="Model")).to_have_value("Qwen/Qwen3-32B")


def test_the_link_to_copy_opens_the_same_view_elsewhere(page: Page, browser: Browser, lab: Lab) -> None:
    _open(page, lab, "devices", "before=a100-sxm4-80gb&device=h100-sxm&estimate=prefill&prompt=2048")
    page.get_by_text("Link to this view").click()
    address = page.locator("[data-testid=stCode]").last.inner_text().strip()
    other = browser.new_context(locale="zh-CN", viewport={"width": 1400, "height": 900}).new_page()
    other.goto(address)
    _drawn(other)
    values = ".st-key-metrics-exchange [data-testid=stMetricValue]"
    assert other.locator(values).all_inner_texts() == page.locator(values).all_inner_texts()
    other.context.close()
