"""What the tests do with the page *Live run*, said once: open, press, wait, look into the chart."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

RUN_S = 90_000
"""Generous: CI may measure this machine before the first run."""

# A press that the page does not hear is a defect; a slow page is not.
expect.set_options(timeout=30_000)


def open_live(page: Page, url: str, **query: object) -> None:
    """Open the page and wait for its chart."""
    page.goto(f"{url}/?" + "&".join(f"{name}={value}" for name, value in ({"lang": "en"} | query).items()))
    page.wait_for_selector(".rl-chart .main-svg", timeout=60_000)
    settled(page)


def settled(page: Page) -> None:
    """Wait until the script has run and nothing is still to be filled in."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=60_000)
    expect(page.locator("[data-testid=stSkeleton]")).to_have_count(0)


def run_button(page: Page, name: str = "Run") -> Locator:
    """The button that starts a run."""
    return page.get_by_role("button", name=name, exact=True)


def press_run(page: Page) -> None:
    """Start a run and wait until the live view follows it; before, it may have shown a recorded one."""
    before = page.locator(".rl-live").get_attribute("data-run")
    run_button(page).click()
    page.wait_for_function(
        """(before) => {
            const run = new URLSearchParams(location.search).get("run")
            return run && run !== before && document.querySelector(".rl-live").dataset.run === run
        }""",
        arg=before,
    )
    settled(page)


def cancel_button(page: Page) -> Locator:
    """The button that ends one."""
    return page.get_by_role("button", name="Cancel", exact=True)


def set_length(page: Page, length: int) -> None:
    """Type a length and leave the field, as a reader would."""
    page.locator(".st-key-length input").fill(str(length))
    page.locator(".st-key-length input").press("Enter")
    page.wait_for_function(f"location.search.includes('length={length}&')")
    settled(page)


def wait_for_state(page: Page, state: str) -> None:
    """Wait until the live view is in this state."""
    expect(page.locator(f'.rl-live[data-state="{state}"]')).to_have_count(1, timeout=RUN_S)


def wait_for_summary(page: Page) -> None:
    """Wait until the run has ended and its numbers are there."""
    expect(page.locator(".st-key-metrics [data-testid=stMetric]").first).to_be_visible(timeout=RUN_S)
    settled(page)


def points(page: Page) -> int:
    """Decode steps on the chart."""
    return int(page.evaluate("document.querySelector('.rl-chart').data[1].x.length"))


def wait_for_points(page: Page, count: int) -> None:
    """Wait until that many decode steps are drawn; looks at every frame, since a fast machine is soon done."""
    page.wait_for_function(f"document.querySelector('.rl-chart').data[1].x.length >= {count}", timeout=RUN_S)


def drawn(page: Page) -> dict[str, Any]:
    """Every number on the chart, trace by trace."""
    traces = "document.querySelector('.rl-chart').data.map(t => [t.name, [t.x, t.y]])"
    return dict(json.loads(page.evaluate(f"JSON.stringify({traces})")))


def metrics(page: Page) -> list[str]:
    """The numbers of the summary as written."""
    return page.locator(".st-key-metrics [data-testid=stMetricValue]").all_inner_texts()


def run_id(page: Page) -> str:
    """The run in the address."""
    return parse_qs(urlsplit(page.url).query)["run"][0]


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
