"""A page must open fast and a host that only shows runs needs no torch: what pages import may not bring it in."""

from __future__ import annotations

import subprocess
import sys

LIGHT = [
    "engine",
    "engine.errors",
    "engine.settings",
    "engine.ceilings",
    "engine.record",
    "engine.request",
    "engine.protocol",
    "engine.spec",
    "engine.catalogue",
    "engine.ledger",
    "engine.roofline",
    "engine.predict",
    "engine.expected",
    "engine.hardware",
    "engine.judging",
    "engine.verdict",
    "engine.summary",
    "engine.record_io",
    "engine.recorded",
    "engine.store",
    "engine.experiments",
    "engine.levers",
    "engine.lookups",
    "engine.matrices",
    "engine.live",
    "engine.supervisor",
    "engine.desk",
    "engine.broker",
    "engine.checkpoint",
    "engine.tokenizer",
    "engine.worker",
    "engine.cli",
]
HEAVY = ["torch", "transformers", "streamlit", "plotly"]


def test_nothing_that_pages_import_brings_torch_in() -> None:
    script = (
        "import importlib, sys\n"
        f"for name in {LIGHT!r}:\n"
        "    importlib.import_module(name)\n"
        f"    found = [heavy for heavy in {HEAVY!r} if heavy in sys.modules]\n"
        "    assert not found, f'{name} imports {found}'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
