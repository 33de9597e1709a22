"""The path walked in a real browser, by keyboard and by pointer, in both languages; the lesson's pages looked at.

Each step's card and page are kept as pictures: in artefacts/path, or in the folder ROOFLINE_LAB_SCREENSHOTS names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from live import overflow, settled
from path_experiments import EXPERIMENTS, press, reach
from playwright.sync_api import Browser, Page, expect
from web_server import ROOT, Lab

from pages._lesson.steps import DONE, STEPS
from pages._parts.words import Words

pytestmark = pytest.mark.browser

NEW_PAGES = ("path", "steps", "map", "glossary")
SCREENSHOTS = Path(os.environ.get("ROOFLINE_LAB_SCREENSHOTS") or ROOT / "artefacts" / "path")


def keep(page: Page, name: str) -> None:
    """A picture for whoever looks at the run of the tests afterwards."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SCREENSHOTS / f"{name}.png"))


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("h1, .rp-card", timeout=60_000)
    settled(page)


def serious(page: Page) -> list[tuple[object, ...]]:
    """What the accessibility checker finds serious or worse."""
    return [
        (violation["id"], node["target"], node.get("failureSummary", "")[:300])
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.fixture(params=["en", "zh"])
def reader(request: pytest.FixtureRequest, browser: Browser) -> Iterator[tuple[Page, str]]:
    """A fresh visitor, in one language and in one colour scheme each."""
    language = request.param
    context = browser.new_context(
        viewport={"width": 1300, "height": 1000}, locale="en-US", color_scheme="light" if language == "en" else "dark"
    )
    yield context.new_page(), language
    context.close()


@pytest.mark.timeout(900)  # eleven experiments; a machine that does much else takes its time over them
def test_the_whole_path_is_walked_by_keyboard_and_each_experiment_done(reader: tuple[Page, str], lab: Lab) -> None:
    page, language = reader
    t = Words(language)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    open_page(page, f"{lab.url}/path?lang={language}")
    press(page, page.locator(".rp-next"))
    for index, step in enumerate(STEPS):
        page.wait_for_function(f"location.search.includes('step={step.id}')")
        page.wait_for_selector(".rp-question")
        settled(page)
        expect(page.locator("[aria-current=step]")).to_have_count(1)
        expect(page.locator("h1")).to_be_hidden()  # the page is the answer
        name = f"{language}-{index + 1:02}-{step.id}"
        keep(page, f"{name}-1-asked")
        if page.locator(".rp-slider").count():
            reach(page, page.locator(".rp-slider"))
            page.keyboard.press("PageUp")
            press(page, page.locator(".rp-question .rp-primary"))
        else:
            press(page, page.locator(".rp-choice").first)
        page.wait_for_selector(".rp-reveal")
        expect(page.locator("h1")).to_be_visible()
        assert page.locator(".rp-answers tr").count() >= 2
        keep(page, f"{name}-2-answered")
        EXPERIMENTS[step.id](page, t)
        keep(page, f"{name}-3-done")
        press(page, page.locator(".rp-onward .rp-next"))
    kept = json.loads(page.evaluate("localStorage.getItem('roofline-lab.path')"))
    assert set(kept["steps"]) == {step.id for step in STEPS}
    assert not [url for url in sent if "guess" in url]
    the_end(page, t)
    open_page(page, f"{lab.url}/path?lang={language}")
    expect(page.locator(".rp-tiles .rp-done")).to_have_count(len(STEPS))


def the_end(page: Page, t: Words) -> None:
    """Every guess beside what was found, this machine's own measurements among it; to be printed and projected."""
    page.wait_for_function(f"location.search.includes('step={DONE.id}')")
    settled(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(t(DONE.title))
    rows = page.locator(".rp-recap tbody tr")
    expect(rows).to_have_count(len(STEPS))
    guesses = rows.locator("td:nth-of-type(1) .rp-recap-value").all_inner_texts()
    assert len(guesses) == len(STEPS)
    assert "–" not in guesses
    for step in ("batch", "one-matrix"):  # measured here on the way
        row = rows.nth([each.id for each in STEPS].index(step))
        expect(row.locator("td:nth-of-type(3) .rp-recap-value")).not_to_have_count(0)
    assert serious(page) == []
    page.screenshot(path=str(SCREENSHOTS / f"{t.language}-12-done.png"), full_page=True)
    press(page, page.get_by_role("button", name=t("Project"), exact=True))
    expect(page.locator("[data-testid=stSidebar]")).to_be_hidden()
    keep(page, f"{t.language}-12-done-projected")
    page.keyboard.press("Enter")
    page.emulate_media(media="print")
    expect(page.locator("[data-testid=stSidebar]")).to_be_hidden()
    expect(page.locator(".rp-rail")).to_be_hidden()
    printed = page.pdf(format="A4")
    (SCREENSHOTS / f"{t.language}-12-done.pdf").write_bytes(printed)
    assert printed.count(b"/Type /Page\n") > 1, "a table longer than a sheet goes on on the next"
    page.emulate_media(media="screen")


def test_a_step_can_be_skipped_projected_and_left(page: Page, lab: Lab) -> None:
    open_page(page, f"{lab.url}/?step=roofline&project=1&lang=en")
    expect(page.locator("[data-testid=stSidebar]")).to_be_hidden()
    page.get_by_role("button", name="Skip the question").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Roofline")
    page.get_by_role("button", name="Project").click()
    expect(page.locator("[data-testid=stSidebar]")).to_be_visible()
    page.locator(".rp-term").first.click()
    expect(page.locator("[role=tooltip]:visible")).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Leave the path").click()
    page.wait_for_function("!location.search.includes('step=')")
    expect(page.locator(".rp-path")).to_have_count(0)
    page.wait_for_function("!document.documentElement.dataset.rpStep")
    page.get_by_role("link", name="This machine").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("This machine")
    expect(page.locator(".rp-path")).to_have_count(0)


def test_a_run_is_replayed_by_arrow_keys_and_boxes_open(page: Page, lab: Lab) -> None:
    open_page(page, f"{lab.url}/steps?lang=en")
    title = page.locator(".rr-title")
    expect(title).to_contain_text("prefill")
    page.keyboard.press("ArrowRight")
    expect(title).to_contain_text("Pass 2 of")
    expect(title).to_contain_text("decode: one row")
    expect(page.locator(".rr-new")).to_have_count(1)  # one entry joined the cache
    page.get_by_role("button", name="Read the weights").click()
    expect(page.locator(".rr-opened")).to_contain_text("for one row")
    expect(page.locator(".rr-opened")).to_contain_text("51.25 GB")
    page.keyboard.press("End")
    page.wait_for_function("new URLSearchParams(location.search).get('at') > 2")
    page.reload()
    expect(title).not_to_contain_text("Pass 1 of")


def test_the_pen_and_paper_task_is_asked_and_answered(page: Page, lab: Lab) -> None:
    open_page(page, f"{lab.url}/steps?lang=en")
    cells = page.locator(".rq-cell")
    expect(cells).to_have_count(15)
    for index in range(15):
        for _ in range(1 if index < 10 else 2):
            cells.nth(index).click()
    page.locator(".rq-count").nth(0).fill("1")
    page.locator(".rq-count").nth(1).fill("5")
    page.locator(".rq-longer").select_option("decode")
    page.locator(".rq-check").click()
    expect(page.locator(".rq-said")).to_have_text("All right.")
    expect(page.locator(".rq-pass")).to_have_count(11)  # 1 + 5 as the text counts, 1 + 4 as the engine does


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing_serious(browser: Browser, lab: Lab, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, locale="en-US")  # type: ignore[arg-type]
    page = context.new_page()
    for name in NEW_PAGES if scheme == "light" else ("steps",):
        open_page(page, f"{lab.url}/{name}?lang=en")
        assert serious(page) == [], name
    open_page(page, f"{lab.url}/devices?step=first-guess&lang=en")
    assert serious(page) == []
    page.get_by_role("button", name="Skip the question").click()
    page.wait_for_selector(".rp-reveal")
    assert [found for found in serious(page) if ".rp-" in str(found[1])] == []
    context.close()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_phone_shows_the_lesson_without_sideways_scrolling(browser: Browser, lab: Lab, language: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    for name in NEW_PAGES if language == "en" else ("steps",):
        open_page(page, f"{lab.url}/{name}?lang={language}")
        keep(page, f"{language}-phone-{name}")
        assert overflow(page) <= 0, name
    for step in ("batch", "misconceptions") if language == "en" else ("misconceptions",):
        open_page(page, f"{lab.url}/?step={step}&lang={language}")
        page.wait_for_selector(".rp-question")
        keep(page, f"{language}-phone-step-{step}")
        assert overflow(page) <= 0, step
        page.locator(".rp-below .rp-quiet").click()
        page.wait_for_selector(".rp-reveal")
        assert overflow(page) <= 0, step
    context.close()
