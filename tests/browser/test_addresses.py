"""Deep links in a real browser: no request fails on the way, and from there every page is reached."""

from __future__ import annotations

import pytest
from live import settled
from playwright.sync_api import Page, expect
from web_server import Lab

pytestmark = pytest.mark.browser


def test_a_deep_link_asks_for_nothing_that_is_not_there(page: Page, lab: Lab) -> None:
    failed: list[str] = []
    page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
    page.on("console", lambda said: failed.append(said.text) if said.type == "error" else None)
    page.goto(f"{lab.url}/roofline?lang=en&prompt=64")
    expect(page.get_by_role("heading", level=1)).to_have_text("Roofline")
    settled(page)
    page.get_by_role("link", name="This machine").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("This machine")
    settled(page)
    assert "/machine" in page.url
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("This machine")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Roofline")
    assert failed == []
