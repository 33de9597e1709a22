"""One server for all tests of the routes and the protocol; its engine measures nothing here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from web_server import Lab, new_home, serve


@pytest.fixture(scope="module")
def lab(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with serve(new_home(tmp_path_factory.mktemp("lab") / "home", demo_home)) as running:
        yield running
