"""A stand-in for the Hugging Face Hub on this machine: lists of files, and files with ETag, commit, ranges, redirects.

It speaks what huggingface_hub 2.4 asks of the Hub to bring a model, and can misbehave on request.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_INFO = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(/revision/(?P<revision>[^/]+))?")
_BLOB = re.compile(r"/blob/(?P<repo>[^/]+/[^/]+)/(?P<commit>[^/]+)/(?P<file>.+)")


@dataclass
class Repo:
    """Versions of one model by commit, and the names that lead to them."""

    versions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    unlisted: set[str] = field(default_factory=set)  # served, not listed
    lost: set[str] = field(default_factory=set)  # listed, not served

    def publish(self, folder: Path, name: str = "main", **more: bytes) -> str:
        """A new version of all files in a folder; returns its commit."""
        files = {path.name: path.read_bytes() for path in folder.iterdir()} | more
        commit = hashlib.sha1(repr(sorted((k, hashlib.sha1(v).digest()) for k, v in files.items())).encode())
        self.versions[commit.hexdigest()] = files
        self.names[name] = commit.hexdigest()
        return commit.hexdigest()


class Hub:
    """The server. `requests`: what was asked, as (method, path, range)."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.break_off_at: dict[str, int] = {}  # file -> byte at which the connection breaks, once
        self.cut: dict[str, int] = {}  # file -> bytes that are sent of it, as if they were all
        self.altered: set[str] = set()  # files sent with another content of the same length
        self.failing: int | None = None  # the status of every answer
        self.names_commits = True  # a proxy that drops headers it does not know makes it False
        self._closed = False
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                hub.answer(self)

            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def repo(self, name: str) -> Repo:
        return self.repos.setdefault(name, Repo())

    def close(self) -> None:
        """From now on nobody answers at this address, not even on connections that are open already."""
        self._closed = True
        self._server.shutdown()
        self._server.server_close()

    def fetched(self, method: str = "GET") -> list[str]:
        """The files whose content was asked for, in order."""
        return [path.rsplit("/", 1)[-1] for asked, path, _ in self.requests if asked == method and "/api/" not in path]

    # ---- answers ---------------------------------------------------------------------------------

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if self._closed:
            request.close_connection = True
            return None
        path = unquote(urlsplit(request.path).path)
        self.requests.append((request.command, path, request.headers.get("Range")))
        if self.failing is not None:
            return self._refuse(request, self.failing, "")
        for pattern, respond in ((_INFO, self._info), (_RESOLVE, self._resolve), (_BLOB, self._blob)):
            if found := pattern.fullmatch(path):
                return respond(request, **found.groupdict())
        return self._refuse(request, 404, "")

    def _info(self, request: BaseHTTPRequestHandler, repo: str, revision: str | None) -> None:
        commit = self._commit(request, repo, revision or "main")
        if commit is None:
            return
        known = self.repos[repo]
        siblings = [_sibling(n, c) for n, c in known.versions[commit].items() if n not in known.unlisted]
        body = json.dumps({"_id": "0", "id": repo, "modelId": repo, "sha": commit, "siblings": siblings}).encode()
        self._send(request, 200, body, {"Content-Type": "application/json"})

    def _resolve(self, request: BaseHTTPRequestHandler, repo: str, revision: str, file: str) -> None:
        commit = self._commit(request, repo, revision)
        if commit is None:
            return None
        content = self.repos[repo].versions[commit].get(file)
        if content is None or file in self.repos[repo].lost:
            return self._refuse(request, 404, "EntryNotFound", {"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit} if self.names_commits else {}
        if not file.endswith(".safetensors"):
            headers["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
            return self._content(request, file, content, headers)
        headers |= {
            "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Linked-Size": str(len(content)),
            # By another name: the Hub's large files are on another host, where the library does not go for a HEAD.
            "Location": f"{self.url.replace('127.0.0.1', 'localhost')}/blob/{repo}/{commit}/{file}",
        }
        return self._send(request, 302, b"", headers)

    def _blob(self, request: BaseHTTPRequestHandler, repo: str, commit: str, file: str) -> None:
        content = self.repos[repo].versions[commit][file]
        if file in self.altered:
            content = content[:-1] + bytes([content[-1] ^ 1])
        self._content(request, file, content[: self.cut.get(file)], {})

    def _commit(self, request: BaseHTTPRequestHandler, repo: str, revision: str) -> str | None:
        known = self.repos.get(repo)
        if known is None:
            self._refuse(request, 404, "RepoNotFound")
        elif known.gated:
            self._refuse(request, 403, "GatedRepo")
        elif revision in known.versions:
            return revision
        elif revision in known.names:
            return known.names[revision]
        else:
            self._refuse(request, 404, "RevisionNotFound")
        return None

    def _content(self, request: BaseHTTPRequestHandler, file: str, content: bytes, headers: dict[str, str]) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        status, start = 200, 0
        if wanted:
            status, start = 206, int(wanted[1])
            headers = headers | {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        stop = self.break_off_at.pop(file, None) if request.command == "GET" else None
        self._send(request, status, content[start:], headers | {"Accept-Ranges": "bytes"}, stop)

    def _refuse(
        self, request: BaseHTTPRequestHandler, status: int, code: str, headers: dict[str, str] | None = None
    ) -> None:
        self._send(request, status, b"{}", {"X-Error-Code": code, **(headers or {})} if code else headers or {})

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        headers: dict[str, str],
        stop: int | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "GET":
            return
        request.wfile.write(body[:stop])
        if stop is not None:
            request.wfile.flush()
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True


def _sibling(name: str, content: bytes) -> dict[str, object]:
    found: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
    if name.endswith(".safetensors"):
        found["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return found


def reached_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty Hub that this test's process asks instead of the real one, with an empty cache and an empty lab home."""
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(folder / "home"))
    monkeypatch.delenv("ROOFLINE_LAB_MODELS", raising=False)
    yield server
    server.close()
