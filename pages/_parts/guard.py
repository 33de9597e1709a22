"""What stands in front of the server: which messages a visitor may send, and which cookie tells visitors apart.

Streamlit lets any visitor clear every cache, upload files and read metrics, whatever the app shows. The
guard drops those. It speaks Streamlit's own websocket protocol, which is private: tests/app keeps watch.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie

from google.protobuf.message import DecodeError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.proto.BackMsg_pb2 import BackMsg

OWNER_COOKIE = "roofline_lab_owner"
ALLOWED_MESSAGES = {"rerun_script", "stop_script", "app_heartbeat", "backend_operation_request"}
CLOSED_ROUTES = ("/_stcore/upload_file", "/_stcore/metrics", "/_stcore/agent")
_A_YEAR_S = 365 * 24 * 3600


class Guard:
    """ASGI middleware: closes routes, filters websocket messages, gives each browser an owner cookie."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, filter or pass on one connection."""
        if scope["type"] == "websocket":
            await self.app(scope, _only_allowed(receive), send)
        elif scope["type"] == "http" and any(route in scope["path"] for route in CLOSED_ROUTES):
            await PlainTextResponse("not found", 404)(scope, receive, send)
        elif scope["type"] == "http" and owner_of(Headers(scope=scope)) is None:
            await self.app(scope, receive, _with_cookie(send, secure=scope.get("scheme") == "https"))
        else:
            await self.app(scope, receive, send)


def owner_of(headers: Headers) -> str | None:
    """The owner cookie a request carries, if it is one of ours by its shape."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(OWNER_COOKIE)
    except CookieError:
        return None
    return morsel.value if morsel and 20 <= len(morsel.value) <= 64 else None


def _only_allowed(receive: Receive) -> Receive:
    async def filtered() -> Message:
        while True:
            event = await receive()
            data = event.get("bytes") if event["type"] == "websocket.receive" else None
            if data is None or _is_allowed(data):
                return event

    return filtered


def _is_allowed(data: bytes) -> bool:
    message = BackMsg()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return False
    return message.WhichOneof("type") in ALLOWED_MESSAGES


def _with_cookie(send: Send, *, secure: bool) -> Send:
    async def sending(event: Message) -> None:
        if event["type"] == "http.response.start" and _is_page(event):
            cookie = f"{OWNER_COOKIE}={secrets.token_urlsafe(24)}; Path=/; Max-Age={_A_YEAR_S}; HttpOnly; SameSite=Lax"
            MutableHeaders(scope=event).append("set-cookie", cookie + ("; Secure" if secure else ""))
        await send(event)

    return sending


def _is_page(event: Message) -> bool:
    return MutableHeaders(scope=event).get("content-type", "").startswith("text/html")
