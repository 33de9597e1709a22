"""Who may talk to the server from a browser: its own pages, and no page of another site."""

from __future__ import annotations

import asyncio

import pytest
from web_server import Lab
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


def _open_session(lab: Lab, origin: str) -> str | None:
    async def opened() -> str | None:
        address = lab.url.replace("http", "ws") + "/_stcore/stream"
        async with connect(address, origin=origin, subprotocols=["streamlit"]) as session:  # type: ignore[arg-type, list-item]
            return session.subprotocol

    return asyncio.run(opened())


def test_the_labs_own_pages_open_a_session(lab: Lab) -> None:
    assert _open_session(lab, lab.url) == "streamlit"


def test_another_sites_page_opens_none(lab: Lab) -> None:
    with pytest.raises(InvalidStatus) as refused:
        _open_session(lab, "http://evil.example")
    assert refused.value.response.status_code == 403
