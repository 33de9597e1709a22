"""Shapes, Live sweeps and Levers for real: measured by pressing, shared by link, cancelled midway, read out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from live import overflow, press_run, set_length, settled, wait_for_summary
from playwright.sync_api import Browser, Page, expect
from web_server import Lab

pytestmark = pytest.mark.browser

END_MS = 240_000
"""Generous: CI may measure this machine before the first experiment."""


def _open(page: Page, lab: Lab, path: str) -> None:
    page.goto(f"{lab.url}/{path}")
    page.wait_for_selector("h1", timeout=60_000)
    settled(page)


def _press(page: Page, name: str) -> None:
    button = page.get_by_role("button", name=name, exact=True)
    expect(button).to_be_enabled(timeout=60_000)
    button.focus()
    page.keyboard.press("Enter")  # the keyboard alone suffices


def _drawn(page: Page, group: str = "measured") -> list[list[float]]:
    found = f"document.querySelector('.rl-plot')?.data?.find(trace => trace.legendgroup === '{group}')"
    return list(json.loads(page.evaluate(f"JSON.stringify([{found}?.x ?? [], {found}?.y ?? []])")))


def _wait_for_points(page: Page, count: int) -> None:
    found = "document.querySelector('.rl-plot')?.data?.find(trace => trace.legendgroup === 'measured')"
    page.wait_for_function(f"({found}?.x.length ?? 0) >= {count}", timeout=END_MS)


def _wait_for_end(page: Page) -> None:
    expect(page.get_by_role("button", name="Measure", exact=True)).to_be_enabled(timeout=END_MS)
    settled(page)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, locale="en-US")
    yield context.new_page()
    context.close()


def test_a_matrix_is_measured_and_its_link_shows_the_same(page: Page, browser: Browser, lab: Lab) -> None:
    _open(page, lab, "shapes?lang=en&matrix_of=tiny-3.7m&held_in=fp32&rows=16")
    _press(page, "Measure")
    page.wait_for_function("location.search.includes('shape=')", timeout=60_000)
    _wait_for_points(page, 1)
    _wait_for_end(page)
    rows, times = _drawn(page)
    assert rows == [1, 2, 3, 4, 6, 8, 12, 16]
    shape = parse_qs(urlsplit(page.url).query)["shape"][0]
    record = json.loads(lab.get(f"/api/experiments/{shape}.json")[1])
    assert [point["time_ns"] for point in record["points"]] == times
    assert lab.get(f"/api/experiments/{shape}.csv")[1].decode("utf-8-sig").count("\n") == 9
    elsewhere = browser.new_context(locale="zh-CN").new_page()
    _open(elsewhere, lab, f"shapes?shape={shape}")
    _wait_for_points(elsewhere, 8)
    assert _drawn(elsewhere) == [rows, times]
    expect(elsewhere.get_by_role("heading", name="形状", exact=True)).to_be_visible()
    elsewhere.context.close()


def test_a_matrix_cancelled_midway_is_kept_and_marked(page: Page, lab: Lab) -> None:
    _open(page, lab, "shapes?lang=en&held_in=fp32&rows=2048")
    _press(page, "Measure")
    _wait_for_points(page, 1)
    _press(page, "Cancel")
    expect(page.get_by_text("were measured and are kept")).to_be_visible(timeout=END_MS)
    shape = parse_qs(urlsplit(page.url).query)["shape"][0]
    record = json.loads(lab.get(f"/api/experiments/{shape}.json")[1])
    assert record["state"] == "cancelled"
    assert 0 < sum(point["time_ns"] is not None for point in record["points"]) < len(record["points"])


def test_a_sweep_is_measured_and_laid_over_batch_and_memory(page: Page, lab: Lab) -> None:
    _open(page, lab, "sweeps?lang=en&axis=batch&up_to=4")
    _press(page, "Measure")
    _wait_for_points(page, 1)
    _wait_for_end(page)
    assert _drawn(page)[0] == [1, 2, 4]
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Lay over Batch and memory").click()
    over = opened.value
    over.wait_for_selector(".rl-plot[data-drawn]", timeout=90_000)
    over.wait_for_function(
        "document.querySelector('.rl-plot').data.filter(t => t.legendgroup === 'measured').length === 3", timeout=60_000
    )


def test_a_lever_is_pulled(page: Page, lab: Lab) -> None:
    page.goto(f"{lab.url}/?lang=en")
    page.wait_for_selector(".rl-chart .main-svg", timeout=120_000)
    settled(page)
    set_length(page, 8)
    press_run(page)
    wait_for_summary(page)
    run = parse_qs(urlsplit(page.url).query)["run"][0]
    _open(page, lab, f"levers?lang=en&run={run}")
    button = page.locator(".st-key-pull_batch-8 button")
    expect(button).to_have_text("Measure", timeout=60_000)
    button.click()
    again = page.locator(".st-key-pull_batch-8 button").filter(has_text="Measure again")  # the row of before may linger
    expect(again.first).to_be_visible(timeout=END_MS)
    expect(page.get_by_text("before any of the measurements")).to_be_visible()


@pytest.mark.parametrize(("width", "language", "theme"), [(1400, "en", "light"), (390, "zh", "dark")])
def test_the_pages_fit_and_can_be_read_out(width: int, language: str, theme: str, browser: Browser, lab: Lab) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    for name in ("shapes", "sweeps", "levers"):
        _open(page, lab, f"{name}?lang={language}")
        assert overflow(page) <= 0, name
        serious = [
            (violation["id"], [node["html"][:120] for node in violation["nodes"]])
            for violation in Axe().run(page).response["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        assert not serious, (name, serious)
    assert not problems
    context.close()
