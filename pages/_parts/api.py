"""The lab's own routes beside Streamlit's: readiness, records as files, import of a record, one script file."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path

import plotly
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine import broker, experiment_record
from engine.errors import LabError
from engine.record import Run
from engine.record_io import read_run, to_csv
from pages._parts import runs
from pages._parts.links import parse_language, parse_run
from pages._parts.stream import stream
from pages._parts.words import Words

MAX_IMPORT_BYTES = 8_000_000
PLOTLY_PATH = f"/api/assets/plotly-{plotly.__version__}.min.js"
_FOREVER = "public, max-age=31536000, immutable"


async def ready(_request: Request) -> Response:
    """200 once the worker answers, 503 before: for whoever supervises the server."""
    machine = await run_in_threadpool(broker.current().machine)
    return JSONResponse({"worker": machine.worker}, 200 if machine.worker in ("ready", "busy") else 503)


async def run_json(request: Request) -> Response:
    """The record of one run, as a file."""
    try:
        run = await _ended(request)
    except LabError as error:
        return _refuse(request, error, 404)
    return _file(run.to_json().encode(), f"roofline-lab-{run.id}.json", "application/json")


async def run_csv(request: Request) -> Response:
    """The steps of one run as a table, as a file."""
    try:
        run = await _ended(request)
    except LabError as error:
        return _refuse(request, error, 404)
    return _file(to_csv(run).encode("utf-8-sig"), f"roofline-lab-{run.id}.csv", "text/csv; charset=utf-8")


async def import_run(request: Request) -> Response:
    """Take in a record that another lab exported: checked, stored under its own id, never run again."""
    return await _import(request, lambda content: _take_in(content).id)


async def _import(request: Request, take_in: Callable[[bytes], str]) -> Response:
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        return _refuse(request, LabError("A run comes as JSON, the way this lab exports it."), 415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_IMPORT_BYTES:
            limit = f"{MAX_IMPORT_BYTES / 1e6:.0f}"
            return _refuse(request, LabError("The file is larger than {limit} MB; no run is.", limit=limit), 413)
    try:
        record_id = await run_in_threadpool(take_in, bytes(body))
    except LabError as error:
        return _refuse(request, error, 422)
    return JSONResponse({"id": record_id}, 201)


def _take_in(content: bytes) -> Run:
    run = read_run(content)
    broker.current().keep(run)
    return run


async def machine_json(_request: Request) -> Response:
    """This machine's ceilings as last measured, as a file."""
    machine = await run_in_threadpool(broker.current().machine)
    if machine.ceilings is None:
        return JSONResponse({"error": "not measured yet"}, 404)
    return _file(machine.ceilings.model_dump_json(indent=1).encode(), "roofline-lab-machine.json", "application/json")


async def plotly_script(request: Request) -> Response:
    """Plotly's own bundle from the installed package: a classroom may be offline."""
    headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        packed = await run_in_threadpool(_plotly_gzipped)
        return Response(packed, media_type="text/javascript", headers=headers | {"Content-Encoding": "gzip"})
    return Response(await run_in_threadpool(_plotly_source), media_type="text/javascript", headers=headers)


def _plotly_source() -> bytes:
    return (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_bytes()


@cache
def _plotly_gzipped() -> bytes:
    return gzip.compress(_plotly_source(), 6)


async def _ended(request: Request) -> Run:
    run_id = parse_run({"run": request.path_params["run_id"]})
    if run_id is None:
        raise runs.missing()
    return await run_in_threadpool(broker.current().record, run_id)


def _refuse(request: Request, error: LabError, status: int) -> Response:
    words = Words(parse_language(request.query_params) or "en")
    # A refusal may quote what was sent, and half a character cannot be sent back.
    text = words.sentence(error.sentence).encode("utf-8", "backslashreplace").decode()
    return JSONResponse({"error": text}, status)


def _file(content: bytes, name: str, media_type: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=media_type, headers=headers)


async def experiment_json(request: Request) -> Response:
    """The record of one experiment, as a file."""
    try:
        record = await _experiment(request)
    except LabError as error:
        return _refuse(request, error, 404)
    return _file(record.to_json().encode(), f"roofline-lab-{record.kind}-{record.id}.json", "application/json")


async def experiment_csv(request: Request) -> Response:
    """The points of one experiment as a table, as a file."""
    try:
        record = await _experiment(request)
    except LabError as error:
        return _refuse(request, error, 404)
    table = experiment_record.to_csv(record).encode("utf-8-sig")
    return _file(table, f"roofline-lab-{record.kind}-{record.id}.csv", "text/csv; charset=utf-8")


async def import_experiment(request: Request) -> Response:
    """Take in an experiment that another lab exported: checked, stored under its own id, never run again."""

    def take_in(content: bytes) -> str:
        record = experiment_record.read(content)
        broker.current().experiments.keep(record)
        return record.id

    return await _import(request, take_in)


async def _experiment(request: Request) -> experiment_record.AnyRecord:
    experiment_id = parse_run({"run": request.path_params["experiment_id"]})
    if experiment_id is None:
        raise LabError("The experiment in this address cannot exist: its name has 12 letters or digits.")
    return await run_in_threadpool(broker.current().experiments.record, experiment_id)


ROUTES = [
    Route("/api/ready", ready),
    Route("/api/machine.json", machine_json),
    Route("/api/runs", import_run, methods=["POST"]),
    Route("/api/runs/{run_id}.json", run_json),
    Route("/api/runs/{run_id}.csv", run_csv),
    Route("/api/runs/{run_id}/stream", stream),
    Route("/api/experiments", import_experiment, methods=["POST"]),
    Route("/api/experiments/{experiment_id}.json", experiment_json),
    Route("/api/experiments/{experiment_id}.csv", experiment_csv),
    Route(PLOTLY_PATH, plotly_script),
]
