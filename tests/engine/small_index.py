"""A package index of one small wheel on this machine, as slow or as broken as a test wants it."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from engine.fetched import Item
from engine.wheels import Wheel

RANKS = [bytes([byte]) for byte in range(256)] + [b"ab", b"abc"]


def make_item(folder: Path, project: str = "tiny-ranks") -> tuple[Item, bytes]:
    """An item whose wheel holds a rank file of 258 tokens and 3 MB of ballast, and the wheel's bytes."""
    name = project.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    lines = [b"%s %d" % (base64.b64encode(token), rank) for rank, token in enumerate(RANKS)]
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/small.tiktoken", b"\n".join(lines))
        archive.writestr(f"{name}/ballast", os.urandom(3_000_000))
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    content = path.read_bytes()
    wheel = Wheel(project, "1.0", path.name, hashlib.sha256(content).hexdigest(), len(content))
    path.unlink()
    item = Item(
        name=project,
        kind="vocabulary",
        folder=f"vocabularies/{project}",
        wheel=wheel,
        member=f"{name}/small.tiktoken",
        needs_bytes=4_000_000,
    )
    return item, content


class Index:
    """The server's state: what it serves and what it was asked for. Tests change it while it runs."""

    def __init__(self, url: str, item: Item, content: bytes) -> None:
        self.url = url
        self.item = item
        self.content = content
        self.breaks_off = False  # half of the file, then the end of the connection
        self.bytes_per_s: float | None = None
        self.bad_answers = 0  # how many downloads still get other bytes
        self.downloads = 0
        self.requests = 0


@contextmanager
def small_index(item: Item, content: bytes) -> Iterator[Index]:
    """Serve the item's wheel on a local port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.requests += 1
            if self.path.rstrip("/") == f"/simple/{item.wheel.project}":
                page = f'<a href="/files/{item.wheel.filename}">{item.wheel.filename}</a>'.encode()
                self._begin("text/html", len(page))
                self.wfile.write(page)
            elif self.path == f"/files/{item.wheel.filename}":
                index.downloads += 1
                self._send_wheel()
            else:
                self.send_error(404)

        def _send_wheel(self) -> None:
            content = index.content
            if index.bad_answers:
                index.bad_answers -= 1
                content = content[:-1000] + bytes(1000)
            self._begin("application/octet-stream", len(content))
            step = 100_000
            if index.breaks_off:
                content = content[: len(content) // 2]
            for start in range(0, len(content), step):
                self.wfile.write(content[start : start + step])
                if index.bytes_per_s:
                    time.sleep(step / index.bytes_per_s)

        def _begin(self, kind: str, size: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(size))
            self.send_header("Cache-Control", "max-age=3600")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index = Index(f"http://127.0.0.1:{server.server_address[1]}/simple", item, content)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
