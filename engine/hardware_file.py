"""Reads a TOML file, or plain fields, that describe a device. What is wrong with one is in `hardware_checks`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.errors import LabError
from engine.hardware_checks import check, explain
from engine.hardware_device import Device

MAX_FILE_KIB = 64


def read(path: Path) -> Device:
    """The device a TOML file describes.

    Raises:
        LabError: the file cannot be read, is not TOML, or says something that cannot be true.
    """
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_FILE_KIB * 1024 + 1)
    except OSError as error:
        raise LabError(
            "The device file {file} cannot be read: {reason}.",
            file=str(path),
            reason=(error.strerror or "unknown").lower(),
        ) from None
    if len(content) > MAX_FILE_KIB * 1024:
        raise LabError(
            "{file} is larger than {limit} KiB; a device file is a page of TOML.", file=path.name, limit=MAX_FILE_KIB
        )
    try:
        fields = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise LabError("{file} is not text in UTF-8; a device file is a page of TOML.", file=path.name) from None
    except tomllib.TOMLDecodeError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise LabError("{file} is not TOML: {reason}.", file=path.name, reason=reason) from None
    return parse(fields, path.name)


def parse(fields: Mapping[str, Any], file: str) -> Device:
    """The device that `fields` describe; `file` is what a refusal calls them.

    Raises:
        LabError: one sentence on the first thing that is wrong.
    """
    try:
        device = Device.model_validate(dict(fields))
    except ValidationError as refused:
        raise explain(refused, file) from None
    check(device, file)
    return device
