"""On a busy machine one change of a component's data overtakes another, and Streamlit calls what the first returned
for its leaving, though the node stays: what is in it has to stay as well, and to go when the node does.
"""

from __future__ import annotations

import pytest
from live import settled
from playwright.sync_api import Page, expect
from web_server import Lab

pytestmark = pytest.mark.browser

# Every component's module goes through one that keeps what each call returned.
KEPT = """
window.leaving = []
const create = URL.createObjectURL
URL.createObjectURL = (blob) => {
  const url = create(blob)
  if (blob.type !== "text/javascript") return url
  const through = `import inner from "${url}"
    export default (mount) => { const leave = inner(mount); window.leaving.push(leave); return leave }`
  return create(new Blob([through], { type: "text/javascript" }))
}
"""
STAYS = {
    "roofline": "document.querySelector('.rl-plot')?._fullLayout",
    "": "document.querySelector('.rl-chart')?._fullLayout",
    "?step=first-guess": "document.documentElement.dataset.rpStep",
}


def _open(page: Page, lab: Lab, path: str) -> None:
    page.add_init_script(KEPT)
    page.goto(f"{lab.url}/{path}{'&' if '?' in path else '?'}lang=en")
    page.wait_for_function(STAYS[path], timeout=60_000)
    settled(page)


@pytest.mark.parametrize("path", STAYS)
def test_what_an_overtaken_change_gave_back_leaves_the_component_as_it_is(path: str, page: Page, lab: Lab) -> None:
    _open(page, lab, path)
    page.evaluate(f"window.before = {STAYS[path]}")
    assert page.evaluate("window.leaving.forEach((leave) => leave?.()); window.leaving.length") > 0
    assert page.evaluate(f"window.before === {STAYS[path]}")


def test_a_chart_is_given_up_with_its_node(page: Page, lab: Lab) -> None:
    _open(page, lab, "roofline")
    page.evaluate("window.plot = document.querySelector('.rl-plot')")
    page.get_by_role("link", name="Words", exact=True).click()
    expect(page.get_by_role("heading", name="Words", exact=True)).to_be_visible()
    page.wait_for_function("!window.plot.isConnected && !window.plot._fullLayout")
