"""Renders one chat template and exits: the process that `engine.chat` runs a checkpoint's template in.

A template is a program from a stranger. Jinja's sandbox keeps it from Python's attributes and from changing
anything; what the sandbox cannot stop (loops without end, strings without end) ends here with the process:
limits on its CPU time and memory where the system has them, and the parent's patience everywhere.

Reads one JSON object from stdin: template, variables, cpu_s, memory_bytes, max_characters. Writes one to stdout: either
{"text": ...} or {"failed": "refused" | "syntax" | "error" | "too_large", "detail": ...}. Runs as a script of
its own, without the rest of the engine.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _RefusedError(Exception):
    """The template itself declined its input."""


class _Generation(Extension):
    """`{% generation %}`: marks the assistant's part for training; what stands inside is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own protocol

    def parse(self, parser: Parser) -> nodes.Scope:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def render(template: str, variables: dict[str, Any], max_characters: int) -> dict[str, str]:
    """The rendered text, or why there is none."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], autoescape=False
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        text = environment.from_string(template).render(**variables)
    except _RefusedError as refusal:
        return {"failed": "refused", "detail": str(refusal)}
    except TemplateSyntaxError as error:
        return {"failed": "syntax", "detail": f"line {error.lineno}: {error.message}"}
    except MemoryError:
        return {"failed": "too_large", "detail": ""}
    except SecurityError as error:
        return {"failed": "error", "detail": str(error)}
    except (TemplateError, RecursionError) as error:
        return {"failed": "error", "detail": str(error) or type(error).__name__}
    except Exception as error:  # whatever a template provokes in Python is the template's fault
        return {"failed": "error", "detail": f"{type(error).__name__}: {error}"}
    if len(text) > max_characters:
        return {"failed": "too_large", "detail": ""}
    return {"text": text}


def _raise(message: object) -> None:
    raise _RefusedError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes < > & for HTML; a prompt is not HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _limit(cpu_s: int, memory_bytes: int) -> None:
    """Let the system end this process when it takes too much. Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def main() -> None:
    """One request from stdin, one answer to stdout."""
    request = json.loads(sys.stdin.buffer.read())
    _limit(request["cpu_s"], request["memory_bytes"])
    answer = render(request["template"], request["variables"], request["max_characters"])
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
