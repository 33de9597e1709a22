"""The command line: what can be asked, and which exit code answers.

0 done, 1 failed with one clear line on stderr, 2 wrong usage. With `--json`, stdout is exactly one
JSON document, or empty where the command was refused. The commands themselves are in `engine.commands`;
nothing is imported before it is asked for.
"""

from __future__ import annotations

import argparse
import errno
import io
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
    _open_what_is_closed()
    arguments = parser().parse_args(argv)
    try:
        command = getattr(import_module(COMMANDS[arguments.command]), arguments.command)
        code = int(command(arguments) or 0)
        sys.stdout.flush()
        return code
    except LabError as error:
        from engine.commands._output import plain

        print(f"error: {plain(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted.", file=sys.stderr)
        return 1
    except BrokenPipeError:
        _give_up_stdout()  # the reader (head, say) has gone: nothing is left to say
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _give_up_stdout()
        print("error: no space is left where the output goes.", file=sys.stderr)
        return 1


def _open_what_is_closed() -> None:
    """What goes to a stream that the caller closed is lost: Python would write it to the other one."""
    if sys.stdout is None:
        sys.stdout = io.StringIO()
    if sys.stderr is None:
        sys.stderr = io.StringIO()


def _give_up_stdout() -> None:
    """What is still to be written goes nowhere; Python would complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """The whole command line, for `main` and for the tests."""
    top = argparse.ArgumentParser(prog="python -m engine", description=import_module("engine").__doc__)
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    for name, what in (("models", "models that can be chosen"), ("hardware", "devices that predictions know")):
        listing = commands.add_parser(name, help=f"list the {what}")
        _json(listing)
    fetch = commands.add_parser("fetch", help="bring a checkpoint to this machine")
    fetch.add_argument("model", metavar="MODEL", help="one of those that `models` lists, or a name on the Hub")

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
    serve.add_argument("--port", type=int, default=8501, help="port to listen on (default: 8501)")
    serve.add_argument("--no-browser", action="store_true", help="do not open a browser")
    return top


def _add_predict(predict: argparse.ArgumentParser) -> None:
    add = predict.add_argument
    add("--model", required=True, metavar="ID", help="a catalogue model, a folder with a config.json, or that file")
    add("--hardware", required=True, metavar="ID", help="a device that `hardware` lists, or a TOML file like theirs")
    add("--prompt-tokens", type=int, default=4, metavar="T", help="tokens the prefill reads (default: 4)")
    add("--context", type=int, default=4096, metavar="S", help="cached positions a decode step reads (default: 4096)")
    add("--batch", type=int, default=1, metavar="B", help="sequences in a decode step (default: 1)")
    add("--preset", choices=("lesson", "engine"), default="engine", help="whose convention counts (default: engine)")
    add("--weights", metavar="FORMAT", help="what weights are held in (default: as published)")
    add("--kv", metavar="FORMAT", help="what the KV cache is held in (default: as published)")
    add("--state", choices=("fp32", "bf16"), help="what a recurrent state is held in (default: as published)")
    add("--tp", type=int, default=1, metavar="N", help="devices sharing every layer (an estimate)")
    _json(predict)


def _add_run(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    add("--model", required=True, metavar="ID", help="a model's id, or a folder in Hugging Face layout")
    add("--prompt", required=True, metavar="TEXT", help="the text to go on from")
    add("--chat", action="store_true", help="wrap the prompt in the model's chat template")
    add("--max-new-tokens", type=int, default=64, metavar="N", help="tokens to write at most (default: 64)")
    add("--batch", type=int, default=1, metavar="B", help="sequences written at the same time (default: 1)")
    _device(run)
    _dtype(run)
    _weights(run)
    _kv(run)
    add(
        "--latent",
        default="absorbed",
        metavar="FORM",
        help="how latent attention reads its cache: absorbed (default) or re-expanded",
    )
    _queue(run)
    add("--temperature", type=float, default=0.0, metavar="X", help="0 is greedy (default)")
    add("--top-k", type=int, default=0, metavar="K", help="choose among the K likeliest tokens (default: 0, no limit)")
    add("--top-p", type=float, default=1.0, metavar="P", help="choose among those that together reach P (default: 1)")
    add("--min-p", type=float, default=0.0, metavar="P", help="drop tokens below P of the likeliest one's (default: 0)")
    add("--seed", type=int, default=0, metavar="N", help="the same seed chooses the same tokens again (default: 0)")
    _json(run)


def _queue(run: argparse.ArgumentParser) -> None:
    """How steps are timed and started on a device that has a queue."""
    wait = "wait for the device after each step (synchronised, default) or after the last (free-running, on CUDA)"
    run.add_argument("--clock", default="synchronised", metavar="MODE", help=wait)
    launches = run.add_mutually_exclusive_group()
    for option, value, what in (
        ("--eager", "eager", "start each op of a step by itself (default)"),
        ("--graph", "graph", "start a decode step at once, as a CUDA graph, in dense decoders"),
        ("--compile", "compiled", "the same, after torch.compile has fused its ops"),
    ):
        launches.add_argument(option, dest="launches", action="store_const", const=value, help=what)
    run.set_defaults(launches="eager")


def _add_shapes(shapes: argparse.ArgumentParser) -> None:
    add = shapes.add_argument
    add("--model", default="Qwen/Qwen3.8-27B", metavar="ID", help="a model of the catalogue (default: the lesson's)")
    add("--matrix", default="mlp.up_proj", metavar="NAME", help="a matrix of that model (default: mlp.up_proj)")
    add("--weights", default="bf16", metavar="FORMAT", help="fp32, bf16 (default), int8 or int4")
    add("--rows", metavar="N,N...", help="numbers of rows (default: 22 of them from 1 to 2048)")
    _device(shapes)
    _format(shapes)
    _json(shapes)


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    add = sweep.add_argument
    add("--model", default="smollm2-135m", metavar="ID", help="a model's id, or a folder (default: smollm2-135m)")
    add("--axis", choices=("batch", "prompt", "context"), default="batch", help="what grows (default: batch)")
    add("--values", metavar="N,N...", help="values of the axis (default: doubling ones)")
    add("--context", type=int, default=128, metavar="S", help="positions attended while the batch grows")
    add("--batch", type=int, default=1, metavar="B", help="sequences while the context grows")
    _dtype(sweep)
    _weights(sweep)
    _kv(sweep)
    _device(sweep)
    _format(sweep)
    _json(sweep)


def _add_runs(runs: argparse.ArgumentParser) -> None:
    actions = runs.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="the newest runs")
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="how many (default: 20)")
    _json(listing)
    show = actions.add_parser("show", help="one run in words")
    show.add_argument("id", metavar="ID", help="as `runs list` shows it")
    export = actions.add_parser("export", help="one run, or one experiment, on stdout")
    export.add_argument("id", metavar="ID", help="as `runs list`, `shapes` or `sweep` shows it")
    export.add_argument("--format", choices=("json", "csv"), default="json", help="json (default) or csv")
    importing = actions.add_parser("import", help="take in a run, or an experiment, that was exported as JSON")
    importing.add_argument("file", metavar="FILE", help="what `runs export` or a page wrote")
    runs.set_defaults(action="list", limit=20, json=False)


def _dtype(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dtype", metavar="T", help="float32 or bfloat16 (default: the checkpoint's own)")


def _weights(command: argparse.ArgumentParser) -> None:
    what = "bf16, int8, int4, int4-g32 or int4-g64; computed in float32 (bf16 in bfloat16, unless --dtype says so)"
    command.add_argument("--weights", metavar="FORMAT", help=what)


def _kv(command: argparse.ArgumentParser) -> None:
    what = "bf16 or int8, for the KV cache alone (default: what is computed in)"
    command.add_argument("--kv", metavar="FORMAT", help=what)


def _format(command: argparse.ArgumentParser) -> None:
    what = "how to print the record: text (default), json or csv"
    command.add_argument("--format", choices=("text", "json", "csv"), default="text", help=what)


def _device(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", metavar="D", help="cpu, cuda, mps or xpu (default: the fastest found)")


def _json(command: argparse.ArgumentParser) -> None:
    what = "one JSON document on stdout; where the command is refused, none: one line on stderr and exit code 1"
    command.add_argument("--json", action="store_true", help=what)
