"""The command line: what can be asked, and which exit code answers.

0 done, 1 failed with one clear line on stderr, 2 wrong usage. With `--json`, stdout is exactly one
JSON document. The commands themselves are in `engine.commands`; nothing is imported before it is asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from engine import __version__
from engine.errors import LabError

COMMANDS = {
    "models": "engine.commands.catalogue",
    "hardware": "engine.commands.catalogue",
    "fetch": "engine.commands.catalogue",
    "predict": "engine.commands.predict",
    "calibrate": "engine.commands.measure",
    "run": "engine.commands.measure",
    "runs": "engine.commands.runs",
    "shapes": "engine.commands.experiments",
    "sweep": "engine.commands.experiments",
    "check": "engine.commands.check",
    "serve": "engine.commands.serve",
}
"""Which module holds each command, as a function of the command's own name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = parser().parse_args(argv)
    command = getattr(import_module(COMMANDS[arguments.command]), arguments.command)
    try:
        return int(command(arguments) or 0)
    except LabError as error:
        from engine.commands._output import plain

        print(f"error: {plain(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted.", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader (head, say) has gone: nothing is left to say. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser() -> argparse.ArgumentParser:
    """The whole command line, for `main` and for the tests."""
    top = argparse.ArgumentParser(prog="python -m engine", description=import_module("engine").__doc__)
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    for name, what in (("models", "models that can be chosen"), ("hardware", "devices that predictions know")):
        listing = commands.add_parser(name, help=f"list the {what}")
        _json(listing)
    fetch = commands.add_parser("fetch", help="bring a checkpoint to this machine")
    fetch.add_argument("model", metavar="MODEL")

    _add_predict(commands.add_parser("predict", help="what a model would cost on a device, without running it"))

    calibrate = commands.add_parser("calibrate", help="measure this machine's ceilings")
    _device(calibrate)
    _json(calibrate)
    _add_run(commands.add_parser("run", help="run a prompt and time every step"))
    _add_shapes(commands.add_parser("shapes", help="time one weight matrix with 1 to 2048 rows"))
    _add_sweep(commands.add_parser("sweep", help="time steps over a growing batch, prompt or context"))
    _add_runs(commands.add_parser("runs", help="recorded runs"))

    check = commands.add_parser("check", help="check this installation")
    _json(check)
    serve = commands.add_parser("serve", help="the lab in the browser")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    serve.add_argument("--port", type=int, default=8501)
    serve.add_argument("--no-browser", action="store_true", help="do not open a browser")
    return top


def _add_predict(predict: argparse.ArgumentParser) -> None:
    predict.add_argument("--model", required=True, metavar="ID")
    predict.add_argument("--hardware", required=True, metavar="ID")
    predict.add_argument("--prompt-tokens", type=int, default=4, metavar="T")
    predict.add_argument("--context", type=int, default=4096, metavar="S", help="cached positions a decode step reads")
    predict.add_argument("--batch", type=int, default=1, metavar="B", help="sequences in a decode step")
    predict.add_argument("--preset", choices=("lesson", "engine"), default="engine")
    predict.add_argument("--weights", metavar="FORMAT")
    predict.add_argument("--kv", metavar="FORMAT")
    predict.add_argument("--state", choices=("fp32", "bf16"))
    predict.add_argument("--tp", type=int, default=1, metavar="N", help="devices sharing every layer (an estimate)")
    _json(predict)


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("--model", required=True, metavar="ID", help="a model's id, or a folder in Hugging Face layout")
    run.add_argument("--prompt", required=True, metavar="TEXT")
    run.add_argument("--chat", action="store_true", help="wrap the prompt in the model's chat template")
    run.add_argument("--max-new-tokens", type=int, default=64, metavar="N")
    run.add_argument("--batch", type=int, default=1, metavar="B")
    _device(run)
    run.add_argument("--dtype", metavar="T", help="float32 or bfloat16 (default: the checkpoint's own)")
    run.add_argument("--weights", metavar="FORMAT", help="bf16, int8, int4, int4-g32 or int4-g64; computed in float32")
    run.add_argument("--kv", metavar="FORMAT")
    run.add_argument(
        "--latent",
        default="absorbed",
        metavar="FORM",
        help="how latent attention reads its cache: absorbed (default) or re-expanded",
    )
    run.add_argument("--temperature", type=float, default=0.0, metavar="X", help="0 is greedy (default)")
    run.add_argument("--top-k", type=int, default=0, metavar="K")
    run.add_argument("--top-p", type=float, default=1.0, metavar="P")
    run.add_argument("--min-p", type=float, default=0.0, metavar="P")
    run.add_argument("--seed", type=int, default=0, metavar="N")
    _json(run)


def _add_shapes(shapes: argparse.ArgumentParser) -> None:
    shapes.add_argument("--model", default="Qwen/Qwen3.8-27B", metavar="ID")
    shapes.add_argument("--matrix", default="mlp.up_proj", metavar="NAME", help="a matrix of that model")
    shapes.add_argument("--weights", default="bf16", metavar="FORMAT")
    shapes.add_argument("--rows", metavar="N,N...", help="numbers of rows (default: 22 of them from 1 to 2048)")
    _device(shapes)
    shapes.add_argument("--format", choices=("text", "json", "csv"), default="text")
    _json(shapes)


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    sweep.add_argument("--model", default="smollm2-135m", metavar="ID")
    sweep.add_argument("--axis", choices=("batch", "prompt", "context"), default="batch")
    sweep.add_argument("--values", metavar="N,N...", help="values of the axis (default: doubling ones)")
    sweep.add_argument("--context", type=int, default=128, metavar="S", help="positions attended while the batch grows")
    sweep.add_argument("--batch", type=int, default=1, metavar="B", help="sequences while the context grows")
    sweep.add_argument("--dtype", metavar="T", help="float32 or bfloat16 (default: the checkpoint's own)")
    _device(sweep)
    sweep.add_argument("--format", choices=("text", "json", "csv"), default="text")
    _json(sweep)


def _add_runs(runs: argparse.ArgumentParser) -> None:
    actions = runs.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="the newest runs")
    listing.add_argument("--limit", type=int, default=20, metavar="N")
    _json(listing)
    show = actions.add_parser("show", help="one run in words")
    show.add_argument("id", metavar="ID")
    export = actions.add_parser("export", help="one run on stdout")
    export.add_argument("id", metavar="ID")
    export.add_argument("--format", choices=("json", "csv"), default="json")
    importing = actions.add_parser("import", help="take in a run that was exported as JSON")
    importing.add_argument("file", metavar="FILE")
    runs.set_defaults(action="list", limit=20, json=False)


def _device(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", metavar="D", help="cpu, cuda, mps or xpu (default: the fastest found)")


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="one JSON document on stdout")
