"""The server as a whole: a deep link first, what visitors may not do, and what a rerun and a crowd cost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from raw_client import RawClient, text_of
from rerun_cost import RERUN_CPU_S, rerun_cpu_s
from streamlit.proto.BackMsg_pb2 import BackMsg
from web_server import ROOT, Lab, new_home, serve

CROWD = 200
CROWD_S = 10


@pytest.mark.parametrize(
    ("page", "query", "expected"),
    [
        ("machine", "lang=en", "predictions rest on"),
        ("", "run=doesnotexist&lang=en", "There is no run doesnotexist here"),
        ("", "model=tiny-3.7m&length=7&lang=en", "tiny-3.7m (random weights)"),
    ],
)
def test_a_deep_link_is_the_first_request_of_a_fresh_process(
    page: str, query: str, expected: str, demo_home: Path, tmp_path: Path
) -> None:
    async def first_request(lab: Lab) -> str:
        async with RawClient(lab.url, query, page) as client:
            return text_of(await client.rerun())

    # From another working directory, as `python -m engine serve` may be called.
    with serve(new_home(tmp_path / "home", demo_home), cwd=tmp_path) as lab:
        shown = asyncio.run(first_request(lab))
    assert expected in shown
    assert "Language" in shown  # the entrypoint ran, and not the page alone


def test_clear_cache_of_a_visitor_is_dropped(lab: Lab) -> None:
    """The message would empty everyone's caches, and with them the sender's session: Chinese would be forgotten."""

    async def clear_then_rerun() -> str:
        async with RawClient(lab.url, "lang=zh") as client:
            assert "现场运行" in text_of(await client.rerun())
            message = BackMsg()
            message.clear_cache = True
            await client.send(message)
            client.query = ""
            return text_of(await client.rerun())

    assert "现场运行" in asyncio.run(clear_then_rerun())


def test_uploads_and_metrics_are_closed(lab: Lab) -> None:
    for path in ("/_stcore/upload_file/session/file", "/_stcore/metrics"):
        request = urllib.request.Request(lab.url + path, data=b"x" * 5000, method="PUT" if "upload" in path else "GET")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 404


@pytest.mark.parametrize("page", ["", "machine"])
def test_a_rerun_costs_little_cpu(lab: Lab, page: str) -> None:
    assert rerun_cpu_s(lab, page, query=lambda: "lang=zh", reruns=25) < RERUN_CPU_S


@pytest.mark.load
def test_a_crowd_opening_at_once_is_served(lab: Lab) -> None:
    async def visit() -> int:
        async with RawClient(lab.url) as client:
            return len(await client.rerun(timeout_s=60))

    async def crowd() -> tuple[float, float]:
        began, used = time.monotonic(), lab.cpu_s()
        served = await asyncio.gather(*(visit() for _ in range(CROWD)))
        assert all(messages > 10 for messages in served)
        return time.monotonic() - began, lab.cpu_s() - used

    wall_s, cpu_s = asyncio.run(crowd())
    # One process serves them: on a machine that does nothing else, its CPU time is how long the last one waits.
    assert cpu_s < CROWD_S
    assert wall_s < 6 * CROWD_S


def test_the_collection_after_each_rerun_is_off() -> None:
    code = "import streamlit as st; from app import app; print(st.get_option('runner.postScriptGC'))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_no_page_imports_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, pages._parts\n"
        "for module in pkgutil.iter_modules(pages._parts.__path__): "
        "importlib.import_module(f'pages._parts.{module.name}')\n"
        "import app, engine.broker, engine.store, engine.tokenizer, engine.checkpoint\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in {'torch', 'transformers'}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
