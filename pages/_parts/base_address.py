"""Tells each page where the lab's server is, so that the browser need not guess it from the page's own address.

Opened at /roofline, Streamlit's browser side asks for /roofline/_stcore/health first and takes the 404 as a sign to
look one level up: two failed requests and a delay for each deep link. One line in the page's head saves both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEAD = b"<head>"


class BaseAddress:
    """ASGI middleware: names the server's address in every HTML page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one connection, a page with its line added."""
        if scope["type"] != "http" or not _wants_a_page(scope["headers"]):
            await self.app(scope, receive, send)
            return
        # The page has to come as it is and whole, to be added to; it is 8 kB.
        unpacked = [(name, value) for name, value in scope["headers"] if name not in (b"accept-encoding", b"range")]
        await self.app(
            {**scope, "headers": unpacked},
            receive,
            _adding(send, scope.get("raw_path", b"").decode("ascii", "replace") or scope["path"]),
        )


def line(path: str) -> bytes:
    """The script that sets Streamlit's own name for where its server is.

    The browser works it out from its own address and the `path` that reached the server, so that it is right behind
    a proxy that takes a prefix away, too.
    """
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    page = json.dumps(path.removeprefix(f"/{base}") if base else path).replace("<", "\\u003c")
    return (
        f"<script>(() => {{ const page = {page}, here = location.pathname; window.__streamlit = {{ BACKEND_BASE_URL: "
        "location.origin + (here.endsWith(page) ? here.slice(0, -page.length) : here) + '/' }})()</script>"
    ).encode()


def _wants_a_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def _adding(send: Send, path: str) -> Send:
    start: Message | None = None
    body = bytearray()

    async def sending(event: Message) -> None:
        nonlocal start
        if event["type"] == "http.response.start" and _is_page(event):
            start = event
        elif start is None:
            await send(event)
        elif event["type"] == "http.response.body":
            body.extend(event.get("body", b""))
            if event.get("more_body"):
                return
            whole = bytes(body).replace(_HEAD, _HEAD + line(path), 1)
            headers = MutableHeaders(scope=start)
            headers["content-length"] = str(len(whole))
            await send(start)
            await send({"type": "http.response.body", "body": whole})

    return sending


def _is_page(event: Message) -> bool:
    return event["status"] == 200 and MutableHeaders(scope=event).get("content-type", "").startswith("text/html")
