"""One run as server-sent events: what has happened so far, then each change, then the end.

Every viewer of a run holds one of these streams; no page reruns while a run goes. Steps pass through as
the engine serialised them, once for all viewers; only states are put into the viewer's language here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from engine import broker
from engine.errors import LabError, Sentence
from pages._parts import runs
from pages._parts.links import parse_language, parse_run
from pages._parts.words import Words

MAX_STREAMS = 500
KEEP_ALIVE_S = 15.0
BETWEEN_S = 0.45
"""Between two sendings of steps to one viewer. Each wakes the server and the browser, which on a small machine share
their cores with the engine; a viewer sees no difference, for the view draws and writes no more often than this."""
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class _Streams:
    """How many are open: a school's worth is served, a flood is refused."""

    open = 0


async def stream(request: Request) -> Response:
    """`/api/runs/{run_id}/stream?lang=zh`: from the first event to the last, whenever one joins."""
    words = Words(parse_language(request.query_params) or "en")
    run_id = parse_run({"run": request.path_params["run_id"]})
    if run_id is None:
        return PlainTextResponse(words.sentence(runs.missing().sentence), 404)
    if _Streams.open >= MAX_STREAMS:
        return PlainTextResponse(words("Too many people are watching; try again in a moment."), 503)
    return StreamingResponse(_follow(run_id, words), media_type="text/event-stream", headers=_HEADERS)


async def _follow(run_id: str, words: Words) -> AsyncIterator[str]:
    _Streams.open += 1
    seen = 0
    try:
        while True:
            try:
                events = await broker.current().wait_async(run_id, seen, KEEP_ALIVE_S)
            except LabError as error:
                yield _data({"type": "end", "kind": "failed", "text": words.sentence(error.sentence)})
                return
            if not events:
                yield ": still here\n\n"
            pause = any(event.startswith('{"type":"steps"') for event in events)
            for event in events:
                seen += 1
                # What the engine serialised is passed on as it is; reading it again would cost each viewer.
                if event.startswith(('{"type":"steps"', '{"type":"prompt"')):
                    yield f"data: {event}\n\n"
                    continue
                told = tell(json.loads(event), words)
                yield _data(told)
                if told["type"] == "end":
                    return
            if pause:
                await asyncio.sleep(BETWEEN_S)
    finally:
        _Streams.open -= 1


def _data(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


def tell(event: dict[str, Any], t: Words) -> dict[str, Any]:
    """An engine event that is not steps, as what the view shows: a kind (its colour), a sentence, a fraction."""
    if event["type"] == "queue":
        return {"type": "state", "kind": "waiting", "text": _queued(event, t), "fraction": None}
    if event["type"] == "end":
        return {"type": "end", "kind": event["state"], "text": _ended(event, t)}
    progress = event.get("progress") or {}
    sentence = progress.get("sentence")
    text = t.sentence(Sentence(**sentence)) if sentence else _state(event["state"], t)
    kind = "waiting" if event["state"] != "running" else "running"
    return {"type": "state", "kind": kind, "text": text, "fraction": progress.get("fraction")}


def _queued(event: dict[str, Any], t: Words) -> str:
    wait = t.number(max(1.0, event["expected_wait_s"]), 0)
    return t("Place {place} in the queue; it starts in about {wait} s.", place=event["place"], wait=wait)


def _ended(event: dict[str, Any], t: Words) -> str:
    told = [event[name] for name in ("error", "notice") if event.get(name)]
    said = [Sentence(**sentence) for sentence in told]
    if event.get("error"):
        return t.sentences(said)
    outcome = {
        "done": t("Done."),
        "cancelled": t("Cancelled; what was measured until then is kept."),
        "failed": t("The run failed."),
    }[event["state"]]
    return " ".join([outcome, t.sentences(said)]).strip()


def _state(state: str, t: Words) -> str:
    return {
        "queued": t("Waiting for its turn."),
        "fetching": t("Bringing the model to this machine; this happens once."),
        "loading": t("Loading the model."),
        "calibrating": t("Measuring this machine; this happens once."),
        "warming_up": t("Warming up: the same shapes once, not counted."),
        "running": t("Reading the prompt."),
    }[state]
