"""A checkpoint's chat template, rendered the way its model was trained to read it, without trusting it.

The conventions are transformers' (`apply_chat_template`): Jinja with trimmed blocks, `tojson` without HTML
escapes, `raise_exception`, `strftime_now`, loop controls, the special tokens as variables. Rendering happens
in a small process of its own (`_template_process`), so that no template can read, change, fill or hang this one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path

from engine.errors import LabError

CPU_S = 5
MEMORY_BYTES = 512 * 1024 * 1024
PATIENCE_S = 30.0  # of wall time: many times CPU_S, since a busy machine starts processes slowly
MAX_CHARACTERS = 1_000_000
_MAX_TEMPLATE_CHARACTERS = 200_000
_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template and the special tokens that it may name."""

    template: str
    tokens: tuple[tuple[str, str], ...] = ()

    def render(self, prompt: str) -> str:
        """One user message and the opening of the assistant's answer, as the model's prompt.

        Raises:
            LabError: the template is broken, refuses the message, takes too long or writes too much.
        """
        # The date is part of the key: templates may write it into the prompt.
        return _render(self, prompt, date.today().isoformat())


def from_folder(folder: Path, settings: Mapping[str, object]) -> ChatTemplate | None:
    """The chat template of a folder in Hugging Face layout, or None where it has none.

    Args:
        folder: may hold chat_template.jinja, which wins over the setting.
        settings: the content of tokenizer_config.json.
    """
    template = settings.get("chat_template")
    try:
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        if isinstance(template, list):
            named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
            template = named.get("default")
    if not isinstance(template, str):
        return None
    tokens = ((name, token_text(settings.get(name))) for name in _TOKEN_NAMES)
    return ChatTemplate(template, tuple((name, text) for name, text in tokens if text is not None))


def token_text(value: object) -> str | None:
    """A special token's text: stored as a string, or as an object with its `content`."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


@lru_cache(maxsize=64)
def _render(template: ChatTemplate, prompt: str, today: str) -> str:
    if len(template.template) > _MAX_TEMPLATE_CHARACTERS:
        raise LabError("The model's chat template is {count} characters long; none is.", count=len(template.template))
    request = {
        "template": template.template,
        "variables": {
            "messages": [{"role": "user", "content": prompt}],
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
            **dict(template.tokens),
        },
        "cpu_s": CPU_S,
        "memory_bytes": MEMORY_BYTES,
        "max_characters": MAX_CHARACTERS,
    }
    answer = _ask(json.dumps(request).encode())
    if "text" in answer:
        return answer["text"]
    detail = " ".join(answer["detail"].split())[:200]
    if answer["failed"] == "refused":
        raise LabError("The model's chat template refuses this prompt: {detail}", detail=detail)
    if answer["failed"] == "too_large":
        raise _too_much()
    raise LabError(
        "The model's chat template cannot be rendered ({detail}); run without chat to send the prompt as it is.",
        detail=detail,
    )


def _ask(request: bytes) -> dict[str, str]:
    """The template process's answer."""
    script = Path(__file__).with_name("_template_process.py")
    try:
        # -P: the script's own folder must not shadow other modules.
        done = subprocess.run(
            [sys.executable, "-P", str(script)], input=request, capture_output=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _too_much() from None
    if done.returncode != 0 and not done.stdout:
        raise _too_much()
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def _too_much() -> LabError:
    return LabError(
        "The model's chat template takes more than {seconds} s, {memory} MB or {characters} characters; "
        "run without chat to send the prompt as it is.",
        seconds=CPU_S,
        memory=MEMORY_BYTES // (1024 * 1024),
        characters=f"{MAX_CHARACTERS:,}",
    )
