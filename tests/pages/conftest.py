"""Pages run by Streamlit's own test runner, with a real broker whose engine stays asleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from engine import broker

ENTRY = Path(__file__).parents[2] / "pages" / "main.py"


@pytest.fixture
def home(demo_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A lab of this test's own that has the demo model."""
    for name in ("models", "vocabularies"):
        (tmp_path / name).symlink_to(demo_home / name)
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(tmp_path))
    broker.stop()
    yield tmp_path
    broker.stop()


@pytest.fixture
def open_page(home: Path) -> Callable[..., AppTest]:
    """Open a page as a link would: `open_page("machine.py", lang="zh")`."""

    def opened(page: str = "live_run.py", **query: str) -> AppTest:
        test = AppTest.from_file(ENTRY, default_timeout=60)
        for name, value in query.items():
            test.query_params[name] = value
        if page != "live_run.py":
            test.switch_page(page)
        return test.run()

    return opened


@pytest.fixture
def kept_run(home: Path) -> str:
    """The id of a measured run of smollm2-135m in this lab's store."""
    from made_up_run import finished_run

    run = finished_run("keptRun00001")
    broker.current().keep(run)
    return run.id


@pytest.fixture
def measured_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine as if it had been measured: 100 GFLOP/s, 18 GB/s from memory."""
    from made_up_run import made_up_ceilings

    lab = broker.current()
    view = lab.machine().model_copy(update={"ceilings": made_up_ceilings()})
    monkeypatch.setattr(lab, "machine", lambda: view)
