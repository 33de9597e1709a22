"""The same pages in the other language, in the dark, on a phone, by keyboard, offline and read aloud."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from live import open_live, overflow, run_button, settled
from playwright.sync_api import Browser, Page, expect
from web_server import Lab

pytestmark = pytest.mark.browser

PAGES = ("", "roofline", "batch", "memory", "devices", "machine")


def test_nothing_is_loaded_from_elsewhere(page: Page, lab: Lab) -> None:
    elsewhere: list[str] = []
    page.on("request", lambda request: elsewhere.append(request.url) if lab.url not in request.url else None)
    for name in PAGES:
        page.goto(f"{lab.url}/{name}")
        settled(page)
    assert [url for url in elsewhere if not url.startswith(("data:", "blob:"))] == []


def test_the_language_switch_changes_words_address_and_chart(page: Page, lab: Lab) -> None:
    open_live(page, lab.url)
    page.evaluate("window.chartOfBefore = document.querySelector('.rl-chart')")
    page.get_by_text("中文", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("现场运行")
    expect(page.locator(".rl-legend")).to_contain_text("逐词生成")
    expect(run_button(page, "运行")).to_be_enabled()
    page.wait_for_function("location.search.includes('lang=zh')")
    assert page.evaluate("window.chartOfBefore === document.querySelector('.rl-chart')")
    page.get_by_role("link", name="本机").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("本机")
    page.wait_for_function("location.search.includes('lang=zh')")


def test_back_brings_the_controls_back(page: Page, lab: Lab) -> None:
    open_live(page, lab.url, length=20)
    field = page.locator(".st-key-length input")
    field.fill("33")
    field.press("Enter")
    page.wait_for_function("location.search.includes('length=33')")
    settled(page)
    page.wait_for_timeout(2_500)  # sooner, an old address may be a message that was under way
    page.go_back()
    expect(field).to_have_value("20")
    page.get_by_role("link", name="This machine").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("This machine")
    page.get_by_role("link", name="Live run").click()
    expect(field).to_have_value("20")


@pytest.mark.parametrize(("scheme", "line"), [("light", "#000000"), ("dark", "#ffffff")])
def test_the_expected_line_is_seen_in_light_and_dark(browser: Browser, lab: Lab, scheme: str, line: str) -> None:
    context = browser.new_context(color_scheme=scheme, locale="en-US")  # type: ignore[arg-type]
    page = context.new_page()
    open_live(page, lab.url)
    assert page.evaluate("document.querySelector('.rl-chart').data[2].line.color") == line
    context.close()


def test_a_hasty_switch_of_languages_loses_no_choice(page: Page, lab: Lab) -> None:
    """The browser names an option by what it is called, and may say so in a language that the lab has left by then."""
    open_live(page, lab.url, model="tiny-3.7m", weights="int8")
    for pause_ms in (30, 120, 300):
        for name in 3 * ["中文", "English"]:
            page.get_by_text(name, exact=True).click()
            page.wait_for_timeout(pause_ms)
        settled(page)
    page.get_by_text("中文", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("现场运行")
    settled(page)
    expect(page.get_by_role("combobox", name="模型")).to_have_value("tiny-3.7m（随机权重）")
    page.wait_for_function("location.search.includes('model=tiny-3.7m&') && location.search.includes('weights=int8')")
    assert "Traceback" not in (lab.home / "server.log").read_text()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_phone_shows_each_page_without_sideways_scrolling(browser: Browser, lab: Lab, language: str) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, locale="en-US", has_touch=True, is_mobile=True
    )
    page = context.new_page()
    for name in PAGES:
        page.goto(f"{lab.url}/{name}?lang={language}")
        page.wait_for_selector("h1", timeout=60_000)
        settled(page)
        assert overflow(page) <= 0
    context.close()


def test_a_run_starts_from_the_keyboard(page: Page, lab: Lab) -> None:
    open_live(page, lab.url, model="tiny-3.7m", length=2)
    page.locator(".st-key-prompt textarea").focus()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement?.innerText?.trim().endsWith('Run')"):
            break
    page.keyboard.press("Enter")
    page.wait_for_function("location.search.includes('run=')")


@pytest.mark.parametrize("name", PAGES)
def test_an_accessibility_checker_finds_nothing_serious(page: Page, lab: Lab, name: str) -> None:
    page.goto(f"{lab.url}/{name}?lang=en")
    page.wait_for_selector("h1", timeout=60_000)
    settled(page)
    found = Axe().run(page)
    ours = [
        (violation["id"], node["target"], node.get("failureSummary", "")[:300])
        for violation in found.response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
    assert ours == []
