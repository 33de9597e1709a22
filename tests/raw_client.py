"""A browser without a browser: Streamlit's websocket protocol, which is private, in a few lines."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

import websockets
from google.protobuf import text_format
from google.protobuf.message import Message
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg


class RawClient:
    """One session: opens the socket, asks for runs of the script, reads what they send."""

    def __init__(self, url: str, query: str = "", page: str = "", headers: dict[str, str] | None = None) -> None:
        self._url = url.replace("http", "ws", 1) + "/_stcore/stream"
        self.query = query
        self._page = page
        self._headers = headers or {}

    async def __aenter__(self) -> RawClient:
        self._socket = await websockets.connect(
            self._url, subprotocols=["streamlit"], max_size=None, open_timeout=30, ping_timeout=60,
            additional_headers=self._headers,
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._socket.close()

    async def send(self, message: BackMsg) -> None:
        """Any message a browser could send."""
        await self._socket.send(message.SerializeToString())

    async def rerun(self, timeout_s: float = 30) -> list[ForwardMsg]:
        """Run the script once and return everything it sent."""
        message = BackMsg()
        message.rerun_script.query_string = self.query
        message.rerun_script.page_name = self._page
        await self.send(message)
        received: list[ForwardMsg] = []
        deadline = time.monotonic() + timeout_s
        while True:
            data = await asyncio.wait_for(self._socket.recv(), max(0.1, deadline - time.monotonic()))
            forward = ForwardMsg()
            forward.ParseFromString(data if isinstance(data, bytes) else data.encode())
            received.append(forward)
            if forward.WhichOneof("type") == "script_finished":
                return received


def text_of(messages: list[ForwardMsg]) -> str:
    """Everything readable in what a run of the script sent."""
    return "\n".join(_readable(message.delta) for message in messages if message.WhichOneof("type") == "delta")


def _readable(delta: Message) -> str:
    return text_format.MessageToString(delta, as_utf8=True)
