"""One path through the page, with a real engine: press, watch, cancel, share, keep, break and mend."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from live import (
    cancel_button,
    drawn,
    metrics,
    open_live,
    points,
    press_run,
    run_button,
    run_id,
    set_length,
    settled,
    wait_for_points,
    wait_for_state,
    wait_for_summary,
)
from playwright.sync_api import Browser, Page, expect
from web_server import Lab

from engine import recorded

pytestmark = pytest.mark.browser

# Long enough to look at twice on a fast machine; its warm-up takes as long as the run.
ENDLESS = {"model": "tiny-3.7m", "length": 2000, "batch": 16, "temperature": 2.0}  # 16 texts do not end early
LONG = {"model": "tiny-3.7m", "length": 1500, "batch": 8}


def test_points_arrive_on_a_chart_that_stays_and_keeps_its_zoom(page: Page, lab: Lab) -> None:
    open_live(page, lab.url, **LONG)
    page.evaluate("window.chartOfBefore = document.querySelector('.rl-chart')")
    press_run(page)
    wait_for_points(page, 4)
    early = points(page)
    _drag_a_zoom(page)
    zoomed = _range(page)
    wait_for_points(page, early + 1)
    wait_for_summary(page)
    record = json.loads(lab.get(f"/api/runs/{run_id(page)}.json")[1])
    assert points(page) == len(record["steps"]) - 1  # random weights may end the text before its length
    assert page.evaluate("window.chartOfBefore === document.querySelector('.rl-chart')")
    assert _range(page) == zoomed
    assert len(metrics(page)) == 8
    assert page.locator(".rl-output").inner_text().strip()


def _drag_a_zoom(page: Page) -> None:
    box = page.locator(".rl-chart .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + box["height"] - 20, steps=6)
    page.mouse.up()
    page.wait_for_function("document.querySelector('.rl-chart').layout.xaxis.range[0] > 0")


def _range(page: Page) -> list[float]:
    return list(page.evaluate("document.querySelector('.rl-chart').layout.xaxis.range"))


def test_the_demo_model_writes_and_says_where_the_time_went(page: Page, lab: Lab) -> None:
    open_live(page, lab.url, length=12)
    assert page.locator(".st-key-prompt textarea").input_value().isascii()  # an English page asks in English
    page.get_by_text("The lesson's sentence", exact=True).click()
    expect(page.locator(".rl-chips").first).to_contain_text("小明")  # as Qwen splits it; as bytes above
    expect(page.locator(".rl-chips").first).to_contain_text("13 tokens for this model")
    press_run(page)
    wait_for_summary(page)
    verdict = page.locator(".st-key-verdict").inner_text()
    assert verdict.startswith(("A token takes", "Disturbed run: a token took"))  # the second where the machine was busy
    assert points(page) <= 11
    assert page.locator(".rl-prompt").inner_text() == "小明把苹果给了"


def test_cancel_ends_a_run_and_another_can_start(page: Page, lab: Lab) -> None:
    open_live(page, lab.url, **ENDLESS)
    press_run(page)
    expect(cancel_button(page)).to_be_enabled()
    expect(run_button(page)).to_be_disabled()
    cancel_button(page).click()
    wait_for_state(page, "cancelled")
    settled(page)
    _another_run_works(page)


def _another_run_works(page: Page) -> None:
    before = run_id(page)
    set_length(page, 8)
    expect(run_button(page)).to_be_enabled()
    press_run(page)
    page.wait_for_function("(id) => !location.search.includes(id)", arg=before)
    wait_for_summary(page)
    assert points(page) == 7


def test_a_second_tab_waits_for_its_readers_run_and_no_longer(page: Page, lab: Lab) -> None:
    open_live(page, lab.url, **ENDLESS)
    second = page.context.new_page()
    open_live(second, lab.url, model="tiny-3.7m", length=8)
    press_run(page)
    run_button(second).click()
    expect(second.get_by_text("You have a run that has not ended")).to_be_visible()
    expect(second.get_by_text("Your own run is still going")).to_be_visible()
    expect(run_button(second)).to_be_disabled()
    cancel_button(page).click()
    wait_for_state(page, "cancelled")
    expect(run_button(second)).to_be_enabled()
    expect(second.get_by_text("Your own run is still going")).to_have_count(0)
    press_run(second)
    wait_for_summary(second)


def test_a_second_browser_watches_the_same_run_and_cannot_cancel_it(page: Page, browser: Browser, lab: Lab) -> None:
    open_live(page, lab.url, **ENDLESS)
    press_run(page)
    expect(cancel_button(page)).to_be_enabled()
    other = browser.new_context(locale="en-US", viewport={"width": 1400, "height": 1000}).new_page()
    open_live(other, lab.url, run=run_id(page))
    expect(cancel_button(other)).to_be_disabled()
    expect(other.get_by_text("You are watching someone else's run")).to_be_visible()
    expect(other.get_by_text("place 1 in the queue")).to_be_visible()
    cancel_button(page).click()
    for each in (page, other):
        wait_for_state(each, "cancelled")
    other.context.close()


def test_a_link_shows_identical_numbers_in_a_second_browser(page: Page, browser: Browser, lab: Lab) -> None:
    open_live(page, lab.url, model="tiny-3.7m", length=9)
    press_run(page)
    wait_for_summary(page)
    other = browser.new_context(locale="en-US", viewport={"width": 1400, "height": 1000}).new_page()
    open_live(other, lab.url, run=run_id(page))
    wait_for_summary(other)
    wait_for_state(other, "done")
    assert points(other) == 8
    assert drawn(page) == drawn(other)
    assert metrics(page) == metrics(other)
    other.context.close()


def test_a_step_faster_than_it_can_be_is_ringed_and_the_legend_says_what_that_means(page: Page, lab: Lab) -> None:
    recorded_run = next(iter(recorded.runs().values()))
    record = json.loads(recorded_run.to_json()) | {"id": "flaggedRun01", "summary": None}
    record["steps"][3]["time_ns"] //= 10  # its file says nothing of a flag
    assert page.request.post(f"{lab.url}/api/runs", data=record).status == 201
    open_live(page, lab.url, run="flaggedRun01")
    wait_for_state(page, "done")
    expect(page.locator(".rl-legend .rl-flagged")).to_have_text("faster than it can be")
    assert page.evaluate("document.querySelector('.rl-chart').data[1].marker.line.width").count(2.5) == 1
    open_live(page, lab.url, run=recorded_run.id)
    wait_for_state(page, "done")
    expect(page.locator(".rl-legend .rl-flagged")).to_have_count(0)


def test_both_files_hold_the_steps_of_the_chart_and_a_record_comes_back_in(
    page: Page, lab: Lab, tmp_path: Path
) -> None:
    open_live(page, lab.url, model="tiny-3.7m", length=6)
    press_run(page)
    wait_for_summary(page)
    on_chart = drawn(page)
    page.get_by_role("tab", name="Share and keep").click()
    saved = {}
    for name, kind in (("Record as JSON", "json"), ("Steps as CSV", "csv")):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        saved[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[kind])
    record = json.loads(saved["json"].read_text())
    assert [step["time_ns"] / 1e6 for step in record["steps"][1:]] == pytest.approx(on_chart["decode"][1])
    rows = list(csv.DictReader(saved["csv"].read_text(encoding="utf-8-sig").splitlines()))
    measured = [int(row["time_ns"]) for row in rows if row["pass"] == "measured"]
    assert measured == [step["time_ns"] for step in record["steps"]]

    record["id"] = "importedRun1"
    saved["json"].write_text(json.dumps(record))
    page.get_by_text("Open a run from a file").click()
    page.locator(".rl-import input").set_input_files(saved["json"])
    expect(page.get_by_text("not on the machine you are using now")).to_be_visible()
    assert run_id(page) == "importedRun1"
    page.wait_for_function("document.querySelector('.rl-live').dataset.run === 'importedRun1'")
    wait_for_state(page, "done")
    for _ in range(60):  # drawn behind what went before, one drawing after the other
        if drawn(page) == on_chart:
            break
        page.wait_for_timeout(500)
    assert drawn(page) == on_chart


def test_a_killed_engine_is_said_and_the_next_run_works(page: Page, lab: Lab) -> None:
    open_live(page, lab.url, **LONG)
    press_run(page)
    wait_for_points(page, 1)
    lab.worker().kill()
    wait_for_state(page, "failed")
    expect(page.locator("[data-testid=stAlert]").first).to_be_visible()
    _another_run_works(page)


def test_who_waits_behind_a_killed_engine_gets_their_run(page: Page, browser: Browser, lab: Lab) -> None:
    open_live(page, lab.url, **ENDLESS)
    press_run(page)
    other = browser.new_context(locale="en-US", viewport={"width": 1400, "height": 1000}).new_page()
    open_live(other, lab.url, model="tiny-3.7m", length=5)
    press_run(other)
    wait_for_state(other, "waiting")
    lab.worker().kill()
    wait_for_state(page, "failed")
    wait_for_summary(other)
    assert points(other) == 4
    other.context.close()
