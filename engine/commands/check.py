"""`check`: does this installation work? One line a check; exit 1 when one fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from engine.commands._output import print_json
from engine.errors import LabError


def check(arguments: argparse.Namespace) -> int:
    """Run every check, whatever the earlier ones said, so that one call tells all that is wrong."""
    results = []
    for name, run_check in _checks():
        try:
            ok, detail = True, run_check()
        except LabError as error:
            ok, detail = False, str(error)
        results.append({"check": name, "ok": ok, "detail": detail})
        if not arguments.json:
            print(f"{'ok    ' if ok else 'FAILED'}  {name}: {detail}", flush=True)
    if arguments.json:
        print_json(results)
    failed = [result["check"] for result in results if not result["ok"]]
    if failed:
        print(f"error: {len(failed)} of {len(results)} checks failed: {', '.join(map(str, failed))}.", file=sys.stderr)
    return 1 if failed else 0


def _checks() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "packages", _packages
    yield "predictions", _predictions
    yield "devices", _devices
    yield "store", _store
    yield "demo model", _demo_model
    yield "engine", _engine


def _packages() -> str:
    from importlib.metadata import version

    names = ("torch", "streamlit", "plotly", "tokenizers", "safetensors")
    return ", ".join(f"{name} {version(name)}" for name in names)


def _predictions() -> str:
    """The lesson's best-known number, 15.39 ms for a decode step of its anchor on an H100, computed anew."""
    from engine.predict import predict

    document = predict("Qwen/Qwen3.8-27B", "h100-sxm", prompt_tokens=4, context=4, batch=1, preset="lesson")
    decode_ms = document["decode"]["time_s"] * 1e3
    if f"{decode_ms:.2f}" != "15.39":
        raise LabError(
            "A decode step of the lesson's anchor comes out at {ms} ms instead of 15.39 ms: "
            "the ledger of this installation is damaged; install it again.",
            ms=f"{decode_ms:.2f}",
        )
    return f"the lesson's decode step comes out at {decode_ms:.2f} ms"


def _devices() -> str:
    from engine import hardware

    return f"{len([hardware.load(device_id) for device_id in hardware.ids()])} device files are valid"


def _store() -> str:
    from engine import settings
    from engine.store import open_store

    store = open_store()
    store.check_writable()
    return f"writable, {len(store.list(limit=1000))} runs, {settings.store_url().split('://')[0]}"


def _demo_model() -> str:
    from engine import checkpoint

    choice = next(c for c in checkpoint.available() if c.id == "smollm2-135m")
    if not choice.fetched:
        return "not fetched yet; the first run brings it, or `python -m engine fetch smollm2-135m`"
    return f"here and whole, SHA-256 {checkpoint.ensure(choice.id, thorough=True).weights_hash()[:16]}..."


def _engine() -> str:
    """Four tokens of the smallest model through the real queue and the real worker."""
    from engine.broker import Broker
    from engine.commands.measure import OWNER
    from engine.record import RunRequest
    from engine.store import open_store

    broker = Broker(open_store(), allow_paths=False)
    broker.start()
    try:
        request = RunRequest(model="tiny-3.7m", prompt="A self-check.", max_new_tokens=4)
        run = broker.wait_for(broker.submit(request, OWNER), timeout_s=300)
    finally:
        broker.stop()
    if run.state != "done" or run.device is None:
        raise LabError.from_sentence(run.error) if run.error else LabError("The engine's own small run did not finish.")
    return f"{len(run.steps)} steps on {run.device.name}, {run.device.threads} threads"
