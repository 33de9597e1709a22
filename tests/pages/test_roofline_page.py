"""Roofline: the lesson's numbers, its four things to try, memory in red, one's own model and device, hostile links."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

import pytest
from reading import at, figure, link, metrics, press, said, traces
from streamlit.testing.v1 import AppTest

from engine import broker, catalogue
from engine.predict import predict
from pages._parts.scene import pack_config

Open = Callable[..., AppTest]
PAGE = "roofline.py"
CHART = "roofline_figure"


def test_the_lessons_numbers_stand_on_the_page(open_page: Open) -> None:
    shown = metrics(open_page(PAGE, lang="en", context="4"))
    assert shown["Prefill"] == ("15.34 ms", "3.84 ms a token")
    assert shown["Decode step"][0] == "15.39 ms"
    assert shown["Ridge"] == ("295", "bf16, T ≥ 297")
    shown = metrics(open_page(PAGE, lang="en", prompt="2048"))
    assert shown["Prefill"] == ("106.9 ms", "0.052 ms a token")
    assert shown["Largest batch"] == ("58", "each holds 419 MB")


def test_first_thing_to_try_the_prompt_climbs_to_the_ridge(open_page: Open) -> None:
    test = open_page(PAGE, lang="en")
    seen = []
    for step in range(3):
        press(test, f"try_0_{step}")
        assert not test.exception
        seen.append(at(test, CHART, "prefill"))
    assert [x for x, _ in seen] == pytest.approx([4, 295, 2048], rel=0.005)
    assert seen[0][1] < seen[1][1] < seen[2][1] == 989.5e12
    assert seen[1][1] == pytest.approx(989.5e12, rel=0.01)  # at the knee
    # Dragged by hand it is the same.
    test.select_slider(key="scene_prompt").set_value(295).run()
    assert at(test, CHART, "prefill") == seen[1]


def test_second_thing_to_try_the_batch_nears_its_limit_and_memory_ends(open_page: Open) -> None:
    test = open_page(PAGE, lang="en")
    for step, (batch, intensity) in enumerate([(1, "1.02"), (16, "14.0"), (58, "36.4"), (59, "36.7")]):
        press(test, f"try_1_{step}")
        assert metrics(test)["Decode intensity"] == (intensity, "limit 93")
        assert at(test, CHART, "ring")[0] == batch
        assert bool(test.error) == (batch == 59)
    assert "80 GB of memory do not hold this: 55.56 GB of weights and 59 × 419 MB" in said(test)
    assert "80.31 GB, 0.31 GB too much. At a context of 4,096 at most 58 fit." in said(test)


def test_third_thing_to_try_kv_takes_over_without_a_state(open_page: Open) -> None:
    def share(test: AppTest, kind: str) -> float:
        bars = {trace["legendgroup"]: trace["x"][0] for trace in figure(test, "bytes_figure")["figure"]["data"]}
        return float(bars.get(kind, 0.0) / sum(bars.values()))

    test = open_page(PAGE, lang="en")
    shares = []
    for step in range(4):
        press(test, f"try_2_{step}")
        shares.append((share(test, "kv"), share(test, "state")))
    (small, none), (large, _), (anchor, state), (anchor_large, _) = shares
    assert none == 0
    assert state > 0
    assert large > 0.5 > small  # Qwen3-32B at 32K: more KV than weights
    assert large > anchor_large
    assert small > anchor


def test_fourth_thing_to_try_attention_stays_at_six(open_page: Open) -> None:
    test = open_page(PAGE, lang="en")
    for step in range(2):
        press(test, f"try_3_{step}")
        assert at(test, CHART, "attention")[0] == 6
        assert metrics(test)["Decode attention"][0] == "6"


def test_every_term_of_the_inequality_opens_its_meaning_and_value(open_page: Open) -> None:
    test = open_page(PAGE, lang="en")
    opened = {block.proto.popover.label: block for block in test.get("popover")}
    assert list(opened) == ["t", "FLOPs", "π", "bytes", "β", "I", "π / β"]
    inside = {label: " ".join(part.value for part in block.markdown) for label, block in opened.items()}
    assert "989.5 TFLOP/s" in inside["π"]
    assert "205 GFLOP / π = 0.207 ms" in inside["FLOPs"]
    assert "51.4 GB / β = 15.34 ms" in inside["bytes"]
    assert "3.35 TB/s" in inside["β"]
    assert "15.34 ms" in inside["t"]
    assert "15.47 ms" in inside["t"]
    assert "3.99 FLOP/byte" in inside["I"]
    assert "295" in inside["π / β"]


def test_both_conventions_say_what_they_count(open_page: Open) -> None:
    lesson, engine = (open_page(PAGE, lang="en", preset=preset, prompt="2048") for preset in ("lesson", "engine"))
    assert "scores for every position of the prompt" not in said(lesson)  # folded, under whose rules they are
    for test, preset in ((lesson, "lesson"), (engine, "engine")):
        test.session_state[f"convention_{preset}"] = True
        test.run()
    assert "scores for every position of the prompt" in said(lesson)
    assert "scores for the last position only" in said(engine)
    expected = predict("Qwen/Qwen3.8-27B", "h100-sxm", preset="engine", prompt_tokens=2048)["prefill"]["time_s"]
    assert metrics(engine)["Prefill"][0] == f"{expected * 1e3:.1f} ms" != metrics(lesson)["Prefill"][0]


def test_a_pasted_config_is_a_model_and_travels_in_the_link(open_page: Open) -> None:
    config = catalogue.config("Qwen/Qwen3-0.6B")
    test = open_page(PAGE, lang="en", model="custom")
    test.text_area(key="pasted").set_value(json.dumps(config)).run()
    assert not test.exception
    again = open_page(PAGE, **dict(parse_qsl(urlsplit(link(test)).query)))
    named = open_page(PAGE, lang="en", model="Qwen/Qwen3-0.6B")
    assert metrics(test) == metrics(again) == metrics(named)


@pytest.mark.parametrize(
    ("pasted", "sentence"),
    [
        ("{", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"model_type": "nothing"}', "nothing is not supported"),
    ],
)
def test_a_config_that_cannot_be_is_one_clear_sentence(pasted: str, sentence: str, open_page: Open) -> None:
    test = open_page(PAGE, lang="en", model="custom")
    test.text_area(key="pasted").set_value(pasted).run()
    assert not test.exception
    assert sentence in said(test)


def test_a_device_of_ones_own_by_three_numbers(open_page: Open) -> None:
    shown = metrics(open_page(PAGE, lang="en", device="custom", tflops="989.5", gbs="3350", gb="80"))
    assert shown == metrics(open_page(PAGE, lang="en"))


def test_this_machine_before_it_is_measured_says_where_to_measure(open_page: Open) -> None:
    test = open_page(PAGE, lang="en", device="this-machine")
    assert not test.exception
    assert "has not been measured yet" in said(test)


def test_this_machine_is_a_device_with_its_own_ridge(open_page: Open, measured_here: object) -> None:
    test = open_page(PAGE, lang="en", device="this-machine", model="smollm2-135m")
    assert not test.exception
    assert metrics(test)["Ridge"][0] == "6"  # 100 GFLOP/s over 18 GB/s
    beside = figure(open_page(PAGE, lang="en", model="smollm2-135m"), CHART)["figure"]["layout"]["annotations"]
    names = [note["text"] for note in beside]
    assert "ridge of this machine, fp32: 5.56 FLOP/byte" in names
    assert "ridge of NVIDIA H100 SXM 80GB, fp32: 20 FLOP/byte" in names


def test_runs_are_laid_over_as_measured_points(open_page: Open, kept_run: str) -> None:
    test = open_page(PAGE, lang="en", model="smollm2-135m", runs=kept_run)
    points = traces(test, CHART, "measured")
    assert {trace["marker"]["symbol"] for trace in points} == {"diamond", "circle"}
    assert all("measured" in trace["text"][0] for trace in points)
    assert kept_run in test.multiselect(key="scene_runs").value
    assert not traces(open_page(PAGE, lang="en", model="smollm2-135m", runs="AAAAAAAAAAAA"), CHART, "measured")


@pytest.mark.parametrize(
    "query",
    [
        {"prompt": "0", "batch": "-5", "context": "1e99"},
        {"prompt": "abc", "batch": "nan", "context": ""},
        {"model": "../../etc/passwd", "device": "nothing", "preset": "x", "weights": "fp1", "kv": "", "state": "int1"},
        {"model": "custom", "config": "A" * 5000},
        {"device": "custom", "tflops": "inf", "gbs": "-1", "gb": "x"},
        {"runs": "../..,<script>,AAAAAAAAAAAA", "batch": "9" * 400},
    ],
)
def test_hostile_links_show_the_page(query: dict[str, str], open_page: Open) -> None:
    test = open_page(PAGE, lang="en", **query)
    assert not test.exception
    assert metrics(test)


def test_a_link_carries_every_value_and_shows_the_same(open_page: Open) -> None:
    test = open_page(PAGE, lang="en")
    test.select_slider(key="scene_batch").set_value(17).run()
    test.selectbox(key="scene_device").set_value("h200-sxm").run()
    test.selectbox(key="scene_kv").set_value("fp8").run()
    query = dict(parse_qsl(urlsplit(link(test)).query, keep_blank_values=True))
    assert {
        "v",
        "model",
        "device",
        "prompt",
        "batch",
        "context",
        "weights",
        "kv",
        "state",
        "preset",
        "runs",
        "lang",
    } == set(query)
    again = open_page(PAGE, **query)
    assert metrics(again) == metrics(test)
    assert figure(again, CHART) == figure(test, CHART)


def test_a_number_between_two_stops_of_a_slider_is_kept(open_page: Open) -> None:
    test = open_page(PAGE, lang="en", prompt="1234")
    assert test.select_slider(key="scene_prompt").value == 1234


def test_in_chinese(open_page: Open) -> None:
    test = open_page(PAGE, lang="zh", batch="59")
    assert test.title[0].value == "屋顶线"
    assert metrics(test)["预填充"][0] == "15.34 ms"
    assert "内存放不下" in test.error[0].value


def test_no_engine_is_started_by_looking(open_page: Open) -> None:
    open_page(PAGE, lang="en")
    assert broker.current().worker_pid is None


def test_every_chart_says_what_it_shows(open_page: Open) -> None:
    test = open_page(PAGE, lang="en")
    for key in (CHART, "bytes_figure"):
        data = figure(test, key)
        assert len(data["alt"]) > 40
        assert all(len(entry["about"]) > 20 for entry in data["legend"])


def test_a_packed_config_is_short() -> None:
    assert len(pack_config(json.dumps(catalogue.config("Qwen/Qwen3.8-27B")))) < 3000
