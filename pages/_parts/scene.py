"""What a reader asks on *Roofline*, *Devices*, *Batch and memory*, *KV and state*: a Scene, from a URL and back.

Pure: no Streamlit, never raises. The four pages share one Scene, so that the model chosen on one is the model of the
next; each page's link carries what that page shows, every value explicitly.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine import catalogue, hardware
from engine.ledger import KV_LAYOUTS, WEIGHT_LAYOUTS
from engine.measured_device import THIS_MACHINE
from engine.record import RUN_ID_PATTERN
from pages._parts.query import VERSION, Ends, number, read, write
from pages._parts.query import link as address

CUSTOM = "custom"
OWN = "own"
STATES = ("fp32", "bf16")
PRESETS = ("lesson", "engine")
MAX_CONFIG_CHARACTERS = 60_000
MAX_MODELS = 6
MAX_RUNS = 8


@dataclass(frozen=True)
class Scene:
    """Names are the URL's parameter names; the defaults are the lesson's own case.

    config: a pasted config.json, packed (see `pack_config`). tflops, gbs, gb: a device of one's own, in TFLOP/s, GB/s
    and GB. before: the card that `device` is compared with. models, runs: several ids, with commas between.
    """

    model: str = "Qwen/Qwen3.8-27B"
    config: str = ""
    device: str = "h100-sxm"
    before: str = "a100-sxm4-80gb"
    tflops: float = 100.0
    gbs: float = 1000.0
    gb: float = 24.0
    prompt: int = 4
    batch: int = 1
    context: int = 4096
    weights: str = OWN
    kv: str = OWN
    state: str = OWN
    preset: str = "lesson"
    estimate: str = "weights"
    count: str = "held"
    models: str = "Qwen/Qwen3.8-27B,Qwen/Qwen3-32B,deepseek-ai/DeepSeek-V3,mistralai/Mistral-7B-v0.1"
    runs: str = ""


LIMITS: dict[str, Ends] = {
    "prompt": (1, 131_072),
    "batch": (1, 1024),
    "context": (1, 1_048_576),
    "tflops": (0.01, 100_000.0),
    "gbs": (1.0, 100_000.0),
    "gb": (1.0, 10_000.0),
}
# Every whole number up to here is a stop of its slider; beyond, stops are about 6 % apart.
EVERY = {"prompt": 32, "batch": 72, "context": 16}
LANDMARKS = {"prompt": (295, 296, 297, 512, 1024, 2048, 4096), "batch": (128, 256, 512), "context": (768, 4608)}
CHOICES: dict[str, tuple[str, ...]] = {
    "weights": (OWN, *WEIGHT_LAYOUTS),
    "kv": (OWN, *KV_LAYOUTS),
    "state": (OWN, *STATES),
    "preset": PRESETS,
    "estimate": ("weights", "decode", "prefill"),
    "count": ("held", "moved"),
}


@cache
def stops(name: str) -> tuple[int, ...]:
    """The stops of one slider: dense where a single step matters, even on a logarithmic scale elsewhere."""
    low, high = (int(end) for end in LIMITS[name])
    found = {*range(low, EVERY[name] + 1), *LANDMARKS[name], high}
    found |= {2**power for power in range(21) if low <= 2**power <= high}
    value = float(EVERY[name])
    while value < high:
        value *= 1.06
        digits = 1 - math.floor(math.log10(value))
        found.add(min(high, int(round(value, digits))))
    return tuple(sorted(found))


@cache
def model_choices() -> tuple[str, ...]:
    """Every model of the catalogue, and one's own last."""
    return (*catalogue.ids(), CUSTOM)


@cache
def device_choices() -> tuple[str, ...]:
    """This machine, every listed device, and one's own."""
    return (THIS_MACHINE, *hardware.ids(), CUSTOM)


def parse_scene(query: Mapping[str, Any], otherwise: Scene | None = None) -> Scene:
    """The scene a query string asks for. Out of range is clamped; what makes no sense is the default."""
    return read(otherwise or Scene(), query, _parse)


def _parse(name: str, default: Any, raw: str) -> Any:
    if name in LIMITS:
        return number(default, raw, LIMITS[name])
    if name in CHOICES:
        return raw if raw in CHOICES[name] else default
    if name == "model":
        return raw if raw in model_choices() else default
    if name in ("device", "before"):
        return raw if raw in device_choices() else default
    if name == "models":
        known = [each for each in dict.fromkeys(raw.split(",")) if each in catalogue.ids()]
        return ",".join(known[:MAX_MODELS]) or default
    if name == "runs":
        return ",".join(each for each in dict.fromkeys(raw.split(",")) if re.fullmatch(RUN_ID_PATTERN, each))
    return raw if unpack_config(raw) else default  # name == "config"


def to_query(scene: Scene, names: Sequence[str]) -> dict[str, str]:
    """These controls as URL parameters; `parse_scene` gives the same values back."""
    query = {name: write(getattr(scene, name)) for name in names if name not in ("config", "tflops", "gbs", "gb")}
    if "model" in names and scene.model == CUSTOM:
        query["config"] = scene.config
    if CUSTOM in (query.get("device"), query.get("before")):
        query |= {name: write(getattr(scene, name)) for name in ("tflops", "gbs", "gb")}
    return query


def read_names(names: Sequence[str]) -> tuple[str, ...]:
    """The parameters a page with these controls reads: those of one's own model and device included."""
    return (*names, *(("config",) if "model" in names else ()), *(("tflops", "gbs", "gb") if "device" in names else ()))


def link(base: str, page: str, scene: Scene, names: Sequence[str], language: str) -> str:
    """An absolute link to a page of the lab at `base` with every value it shows."""
    return address(base, page, {"v": str(VERSION), **to_query(scene, names), "lang": language})


def pack_config(text: str) -> str:
    """A config.json as a URL can carry it; empty where the text is not one JSON object of sane size."""
    try:
        config = json.loads(text) if len(text) <= MAX_CONFIG_CHARACTERS else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(config, dict):
        return ""
    packed = zlib.compress(json.dumps(config, separators=(",", ":")).encode(), 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


@cache
def _unpacked(packed: str) -> str:
    try:
        data = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, MAX_CONFIG_CHARACTERS).decode()
        return text if unpacking.eof and isinstance(json.loads(text), dict) else ""
    except (ValueError, zlib.error, RecursionError):
        return ""


def unpack_config(packed: str) -> str:
    """The config.json of a URL as text, or empty where it holds none."""
    return _unpacked(packed) if len(packed) <= MAX_CONFIG_CHARACTERS else ""
