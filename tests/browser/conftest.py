"""A real server, a real engine and a real Chromium."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from web_server import Lab, measured_once, new_home, serve

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="session")
def lab(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    measured_once(demo_home)
    with serve(new_home(tmp_path_factory.mktemp("lab") / "home", demo_home)) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh visitor on a desktop, in English, in light colours."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, locale="en-US", color_scheme="light")
    yield context.new_page()
    context.close()
