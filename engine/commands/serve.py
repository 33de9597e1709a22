"""`serve`: the lab in the browser."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
import urllib.request
import webbrowser
from pathlib import Path

from engine.errors import LabError

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 60.0


def serve(arguments: argparse.Namespace) -> int:
    """Serve app.py until interrupted; works from any folder."""
    app = ROOT / "app.py"
    if not app.is_file():
        raise LabError(
            "The pages are not beside the engine ({folder}); serve from a clone of the repository.", folder=str(ROOT)
        )
    _require_free(arguments.host, arguments.port)
    # Streamlit reads .streamlit/config.toml from the working folder, and pages import `pages._parts`.
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    address = f"http://{_in_url(arguments.host)}:{arguments.port}"
    print(f"Roofline Lab: {address}  (Ctrl-C ends it)", file=sys.stderr, flush=True)
    if not arguments.no_browser:
        threading.Thread(target=_open_when_ready, args=(address,), daemon=True).start()

    from streamlit.web import cli as streamlit_cli

    sys.argv = ["streamlit", "run", str(app), "--server.address", arguments.host, "--server.port", str(arguments.port)]
    sys.argv += ["--logger.hideWelcomeMessage", "true"]  # the address stands there already
    # Streamlit's own command parses sys.argv and ends by raising SystemExit.
    streamlit_cli.main()
    return 0


def _require_free(host: str, port: int) -> None:
    if not 1 <= port <= 65_535:
        raise LabError("Port {port} does not exist; choose one from 1 to 65535.", port=port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LabError(
                "Cannot listen on {host}, port {port} ({reason}); choose another with --port.",
                host=host,
                port=port,
                reason=error.strerror or str(error),
            ) from error


def _in_url(host: str) -> str:
    if host in ("0.0.0.0", "::", ""):
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _open_when_ready(address: str) -> None:
    """Open the browser once the page would show; give up quietly, the address stands in the terminal."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2):
                break
        except OSError:
            time.sleep(0.2)
    webbrowser.open(address)
