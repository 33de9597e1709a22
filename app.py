"""Serves the lab: `streamlit run app.py`. Pages, JSON routes and the one worker behind them, on one port."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import streamlit as st
from starlette.middleware import Middleware

from pages._parts import api
from pages._parts.base_address import BaseAddress
from pages._parts.guard import Guard


def _import_parts() -> None:
    """Import all that page scripts do: a class that opens them at once would wait in line for each import's lock."""
    import pages._lesson
    import pages._parts

    for package in (pages._parts, pages._lesson):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


@asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[dict[str, Any]]:
    """Start the broker, import what pages need, and freeze it all out of garbage collection's sight."""
    import pandas as pd
    import plotly.graph_objects as go
    from starlette.concurrency import run_in_threadpool

    from engine import broker

    _import_parts()
    go.Figure([go.Scatter(x=[0], y=[0])]).to_json()
    pd.DataFrame({"warm": [1]}).to_json()
    await run_in_threadpool(broker.start)
    gc.collect()
    gc.freeze()
    yield {}
    await run_in_threadpool(broker.stop)


app = st.App(
    "pages/main.py", middleware=[Middleware(Guard), Middleware(BaseAddress)], lifespan=lifespan, routes=api.ROUTES
)
