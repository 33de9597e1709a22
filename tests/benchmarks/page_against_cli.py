"""Does the page disturb the clock? Median decode time of runs pressed in Chromium against runs from the command line.

    python tests/benchmarks/page_against_cli.py [--pairs 10] [--sessions 20]

Runs are made in turn on one machine, with other sessions open on a finished run. Prints a line a pair, then one JSON
line: the geometric mean of page / command line and its 95 % interval (Student's t on the logarithms). Needs a
fetched demo model, Chromium, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first of all: tests/ has a folder named engine too

from conftest import ARGUMENTS, CHROMIUM
from live import open_live, press_run, run_id, wait_for_state
from playwright.sync_api import Page, sync_playwright
from raw_client import RawClient
from web_server import Lab, serve

from engine import settings

MODEL, LENGTH, PROMPT = "smollm2-135m", 160, "小明把苹果给了"
STUDENT_T_95 = {4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262, 12: 2.201, 20: 2.093}
"""Two-sided 95 % quantiles of Student's t by number of pairs (one degree of freedom less)."""


def main() -> None:
    arguments = parse()
    home = settings.home()
    with serve(home, ROOFLINE_LAB_THREADS=str(settings.threads())) as lab, sync_playwright() as playwright:
        lab.wait_ready()
        finished = from_command_line()["id"]
        with sessions(lab, finished, arguments.sessions):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            page = browser.new_page()
            from_page(page, lab)  # the first run calibrates where nothing is known yet
            ratios = [pair(page, lab, page_first=number % 2 == 0) for number in range(arguments.pairs)]
            browser.close()
    print(json.dumps(summary(ratios, arguments.sessions)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10, choices=sorted(STUDENT_T_95))
    parser.add_argument("--sessions", type=int, default=20)
    return parser.parse_args()


def pair(page: Page, lab: Lab, *, page_first: bool) -> float:
    """One run each way; the order alternates so that a drift of the machine cancels."""
    if page_first:
        on_page, on_line = decode_ms(from_page(page, lab)), decode_ms(from_command_line())
    else:
        on_line, on_page = decode_ms(from_command_line()), decode_ms(from_page(page, lab))
    print(f"page {on_page:7.3f} ms   command line {on_line:7.3f} ms   ratio {on_page / on_line:.3f}", flush=True)
    return on_page / on_line


def from_page(page: Page, lab: Lab) -> dict:
    """Press Run in a fresh view of the page and read the record by its link."""
    open_live(page, lab.url, model=MODEL, length=LENGTH)
    press_run(page)
    wait_for_state(page, "done")
    return json.loads(lab.get(f"/api/runs/{run_id(page)}.json")[1])


def from_command_line() -> dict:
    command = [sys.executable, "-m", "engine", "run", "--model", MODEL, "--prompt", PROMPT, "--json"]
    done = subprocess.run([*command, "--max-new-tokens", str(LENGTH)], capture_output=True, check=True, env=os.environ)
    return json.loads(done.stdout)


def decode_ms(run: dict) -> float:
    return statistics.median(step["time_ns"] for step in run["steps"] if step["phase"] == "decode") / 1e6


@contextmanager
def sessions(lab: Lab, finished: str, count: int) -> Iterator[None]:
    """Open sessions that show a finished run, and keep them open."""
    loop, opened, close = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def hold() -> None:
        clients = [await RawClient(lab.url, f"run={finished}").__aenter__() for _ in range(count)]
        for client in clients:
            await client.rerun()
        opened.set()
        await close.wait()
        for client in clients:
            await client.__aexit__(None, None, None)

    thread = threading.Thread(target=lambda: loop.run_until_complete(hold()))
    thread.start()
    opened.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(close.set)
        thread.join()


def summary(ratios: list[float], session_count: int) -> dict:
    logs = [math.log(ratio) for ratio in ratios]
    half = STUDENT_T_95[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return {
        "page_over_command_line": round(math.exp(mean), 4),
        "interval_95": [round(math.exp(mean - half), 4), round(math.exp(mean + half), 4)],
        "pairs": len(ratios),
        "sessions": session_count,
        "machine": platform.processor() or platform.machine(),
        "threads": settings.threads(),
    }


if __name__ == "__main__":
    main()
