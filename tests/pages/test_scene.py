"""A scene from a URL and back: pure, never raises, and what cannot be is the default."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import fields, replace
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import catalogue
from pages._parts.scene import (
    LIMITS,
    MAX_CONFIG_CHARACTERS,
    Scene,
    device_choices,
    link,
    model_choices,
    pack_config,
    parse_scene,
    stops,
    to_query,
    unpack_config,
)

NAMES = [field.name for field in fields(Scene) if field.name not in ("config", "tflops", "gbs", "gb")]

scenes = st.builds(
    Scene,
    model=st.sampled_from(model_choices()),
    config=st.just(pack_config('{"model_type": "qwen3"}')),
    device=st.sampled_from(device_choices()),
    before=st.sampled_from(device_choices()),
    prompt=st.integers(1, 131_072),
    batch=st.integers(1, 1024),
    context=st.integers(1, 1_048_576),
    preset=st.sampled_from(["lesson", "engine"]),
    runs=st.just("abcdefghijkl,ABCDEFGHIJKL"),
)


# No deadline: how long an example takes says more about the machine's load than about the code.
@settings(deadline=None)
@given(scenes)
def test_what_is_written_is_read_back(scene: Scene) -> None:
    back = parse_scene(to_query(scene, NAMES))
    assert replace(back, config="", tflops=0, gbs=0, gb=0) == replace(scene, config="", tflops=0, gbs=0, gb=0)
    if scene.model == "custom":
        assert back.config == scene.config


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([field.name for field in fields(Scene)]), st.text() | st.none()))
def test_no_query_raises_and_every_value_is_in_range(query: dict[str, str | None]) -> None:
    scene = parse_scene(query)
    for name, (low, high) in LIMITS.items():
        assert low <= getattr(scene, name) <= high
    assert scene.model in model_choices()
    assert scene.device in device_choices()
    assert set(scene.models.split(",")) <= set(catalogue.ids())


@pytest.mark.parametrize(("raw", "expected"), [("0", 1), ("5000", 1024), ("-1", 1), ("58.9", 58), ("x", 1), ("nan", 1)])
def test_numbers_out_of_range_are_clamped_and_nonsense_is_the_default(raw: str, expected: int) -> None:
    assert parse_scene({"batch": raw}).batch == expected


@pytest.mark.parametrize("name", ["prompt", "batch", "context"])
def test_sliders_stop_where_the_lesson_does(name: str) -> None:
    wanted = {"prompt": {4, 295, 297, 2048}, "batch": {1, 58, 59}, "context": {4, 768, 4096, 4608, 32_768}}[name]
    assert wanted <= set(stops(name))
    assert len(stops(name)) < 260
    assert (stops(name)[0], stops(name)[-1]) == LIMITS[name]


def test_a_config_survives_the_link() -> None:
    config = catalogue.config("moonshotai/Kimi-K3")
    assert json.loads(unpack_config(pack_config(json.dumps(config, indent=4)))) == config


def _packed(text: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text, 9)).decode().rstrip("=")


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "!",
        "AAAA",
        _packed(b"[1]"),
        _packed(b"{"),
        _packed(b"\xff\xfe"),
        _packed(b'{"a":"' + b"x" * 20_000_000 + b'"}'),
    ],
)
def test_what_is_no_config_is_none(packed: str) -> None:
    assert unpack_config(packed) == ""
    assert parse_scene({"config": packed}).config == ""


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "{" * 100_000, json.dumps({"a": "x" * MAX_CONFIG_CHARACTERS})])
def test_what_cannot_be_packed_is_empty(text: str) -> None:
    assert pack_config(text) == ""


def test_a_link_says_every_value() -> None:
    address = link("https://lab.example.org/base/", "roofline", Scene(), ["model", "batch", "context"], "zh")
    parts = urlsplit(address)
    assert (parts.netloc, parts.path) == ("lab.example.org", "/base/roofline")
    assert dict(parse_qsl(parts.query)) == {
        "v": "1", "model": "Qwen/Qwen3.8-27B", "batch": "1", "context": "4096", "lang": "zh"
    }  # fmt: skip
