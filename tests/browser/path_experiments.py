"""What a reader does at each step of the path, done with the keyboard alone and measured for real on the demo model."""

from __future__ import annotations

from collections.abc import Callable

from live import RUN_S, settled, wait_for_summary
from playwright.sync_api import Locator, Page, expect

from pages._parts.words import Words

END_MS = 240_000
"""Generous: CI may measure this machine before the first experiment."""
MOST_TABS = 300


def reach(page: Page, target: Locator) -> None:
    """Go there with the Tab key, on from where the focus is and around the page once at most."""
    expect(target).to_be_visible()
    for _ in range(MOST_TABS):
        if target.evaluate("element => element.contains(document.activeElement)"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the Tab key does not lead to {target}")


def press(page: Page, target: Locator) -> None:
    """Go to a button or a link and press Enter."""
    expect(target).to_be_enabled(timeout=RUN_S)
    reach(page, target)
    page.keyboard.press("Enter")


def choose(page: Page, key: str, name: str) -> None:
    """Type a name into a list of choices and take what it finds."""
    reach(page, page.locator(f".st-key-{key} input"))
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    settled(page)


def slide(page: Page, key: str, *keys: str) -> None:
    """Move a slider."""
    reach(page, page.locator(f".st-key-{key} input[type=range]"))
    for each in keys:
        page.keyboard.press(each)
    settled(page)


def address_has(page: Page, said: str) -> None:
    """Wait until the address says so."""
    page.wait_for_function(f"location.search.includes({said!r})", timeout=RUN_S)
    settled(page)


def _run(page: Page, t: Words) -> None:
    """Press Run and wait until the run that it started has ended; what was shown before has a summary too."""
    before = page.locator(".rl-live").get_attribute("data-run")
    press(page, page.get_by_role("button", name=t("Run"), exact=True))
    page.wait_for_function(
        """before => {
            const shown = document.querySelector(".rl-live")?.dataset
            return shown && shown.run !== before && shown.state === "done" && location.search.includes(shown.run)
        }""",
        arg=before,
        timeout=RUN_S,
    )
    wait_for_summary(page)


def _request(page: Page, t: Words) -> None:
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".rr-new")).to_have_count(1)
    press(page, page.locator(".rr-box").nth(2))
    expect(page.locator(".rr-opened")).to_contain_text("51.25 GB")
    reach(page, page.locator(".rq-cell").first)
    for index in range(15):
        for _ in range(1 if index < 10 else 2):
            page.keyboard.press("Enter")
        page.keyboard.press("Tab")
    page.keyboard.type("1")
    page.keyboard.press("Tab")
    page.keyboard.type("5")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".rq-said")).to_have_text(t("All right."))


def _first_guess(page: Page, t: Words) -> None:
    press(page, page.get_by_role("button", name=t("Swap")))
    address_has(page, "device=a100")


def _where_it_fails(page: Page, t: Words) -> None:
    choose(page, "scene_device", "H200 SXM")
    address_has(page, "device=h200-sxm")


def _roofline(page: Page, t: Words) -> None:
    slide(page, "scene_prompt", "ArrowRight", "ArrowRight", "ArrowRight")
    address_has(page, "prompt=7&")
    press(page, page.get_by_role("button", name="π / β", exact=True))
    expect(page.get_by_text("FLOP/").last).to_be_visible()
    page.keyboard.press("Escape")


def _two_phases(page: Page, t: Words) -> None:
    slide(page, "scene_prompt", "End")
    expect(page.locator(".st-key-metrics-roofline [data-testid=stMetric]").first).to_be_visible()


def _one_matrix(page: Page, t: Words) -> None:
    choose(page, "matrix_of", "smollm2-135m")
    slide(page, "rows", "Home", "ArrowRight", "ArrowRight", "ArrowRight")
    press(page, page.get_by_role("button", name=t("Measure"), exact=True))
    address_has(page, "shape=")
    expect(page.get_by_role("button", name=t("Measure"), exact=True)).to_be_enabled(timeout=END_MS)
    settled(page)
    expect(page.locator(".rp-lines")).to_contain_text("smollm2-135m")  # the card knows what was timed


def _state_and_kv(page: Page, t: Words) -> None:
    press(page, page.locator(".st-key-scene_count").get_by_role("radio", name=t("held"), exact=True))
    address_has(page, "count=held")


def _batch(page: Page, t: Words) -> None:
    slide(page, "scene_batch", "End")
    expect(page.locator("[data-testid=stAlert]").first).to_be_visible()
    press(page, page.get_by_role("link", name=t("Live sweeps"), exact=True))
    expect(page.get_by_role("heading", level=1)).to_have_text(t("Live sweeps"))
    settled(page)
    slide(page, "up_to", "Home")
    press(page, page.get_by_role("button", name=t("Measure"), exact=True))
    address_has(page, "sweep=")
    expect(page.get_by_role("button", name=t("Measure"), exact=True)).to_be_enabled(timeout=END_MS)
    press(page, page.locator(".rp-away .rp-step-link"))
    expect(page.locator(".rp-answers")).to_contain_text("smollm2-135m")


def _misconceptions(page: Page, t: Words) -> None:
    press(page, page.locator(".st-key-belief_0 button"))
    address_has(page, "device=h200-sxm")


def _still_open(page: Page, t: Words) -> None:
    press(page, page.get_by_role("link", name=t("Run it here")))
    expect(page.get_by_role("heading", level=1)).to_have_text(t("Live run"))
    settled(page)
    _run(page, t)
    press(page, page.locator(".rp-away .rp-step-link"))
    settled(page)
    expect(page.locator("table").filter(has_text=t("how a step runs")).locator("tbody tr")).to_have_count(2)


EXPERIMENTS: dict[str, Callable[[Page, Words], None]] = {
    "question": _run,
    "request": _request,
    "first-guess": _first_guess,
    "where-it-fails": _where_it_fails,
    "roofline": _roofline,
    "two-phases": _two_phases,
    "one-matrix": _one_matrix,
    "state-and-kv": _state_and_kv,
    "batch": _batch,
    "misconceptions": _misconceptions,
    "still-open": _still_open,
}
