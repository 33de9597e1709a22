"""Devices, Batch and memory, KV and state: the lesson's numbers, links, languages, what is not there yet."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

import pytest
from reading import figure, link, metrics, press, said, traces
from streamlit.testing.v1 import AppTest

from engine import hardware, measurements
from pages._parts import palette

Open = Callable[..., AppTest]
PAGES = ("devices.py", "batch.py", "memory.py")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "query",
    [
        {
            "model": "nothing",
            "device": "",
            "before": "../x",
            "batch": "0",
            "context": "inf",
            "estimate": "x",
            "count": "1",
        },
        {"models": ",,,x/y", "prompt": "-1", "preset": "'", "kv": "fp99"},
        {"model": "custom", "config": "eNo", "device": "custom", "gb": "-3", "tflops": "1e9", "gbs": "none"},
    ],
)
def test_hostile_links_show_the_page(page: str, query: dict[str, str], open_page: Open) -> None:
    test = open_page(page, lang="en", **query)
    assert not test.exception
    # A device of 1 GB is one, and the lesson's model does not fit in it.
    assert all("do not hold this" in error.value for error in test.error)
    assert test.get("bidi_component")


@pytest.mark.parametrize("page", PAGES)
def test_links_show_the_same_again(page: str, open_page: Open) -> None:
    test = open_page(page, lang="en", context="8192", batch="7", model="Qwen/Qwen3-32B", preset="engine")
    again = open_page(page, **dict(parse_qsl(urlsplit(link(test)).query, keep_blank_values=True)))
    assert metrics(again) == metrics(test)
    assert link(again) == link(test)
    assert [each.proto.json for each in again.get("bidi_component")] == [
        each.proto.json for each in test.get("bidi_component")
    ]


@pytest.mark.parametrize("page", ["devices.py", "batch.py"])
def test_this_machine_unmeasured_is_one_sentence(page: str, open_page: Open) -> None:
    test = open_page(page, lang="en", device="this-machine")
    assert not test.exception
    assert "has not been measured yet" in said(test)


def test_one_sequence_here_is_read_at_its_own_rate_whatever_the_batch(open_page: Open, measured_here: object) -> None:
    """A small model alone is read from a cache, with the caches of 64 others beside it from memory."""
    asked = {"lang": "en", "device": "this-machine", "model": "tiny-3.7m"}
    alone, crowd = (metrics(open_page("batch.py", batch=batch, **asked)) for batch in ("1", "64"))
    assert alone["One sequence"] == alone["B = 1"] == crowd["One sequence"]


# ---- devices --------------------------------------------------------------------------------------------------------


def test_another_card_changes_the_two_estimates_differently(open_page: Open) -> None:
    shown = metrics(open_page("devices.py", lang="en", before="a100-sxm4-80gb", device="h100-sxm"))
    assert shown["compute alone"] == ("6,088 → 19,308", "× 3.17 (+217 %)")
    assert shown["bytes alone"] == ("39.8 → 65.4", "× 1.64 (+64 %)")
    assert shown["at best"] == shown["bytes alone"]


def test_the_page_says_which_estimate_the_step_follows(open_page: Open) -> None:
    token = said(open_page("devices.py", lang="en"))
    assert "25.13 ms** to **15.30 ms" in token
    assert "so the step follows the estimate by bytes; compute alone would have promised × 3.17" in token.replace(
        "**", ""
    )
    prompt = said(open_page("devices.py", lang="en", estimate="prefill", prompt="8192")).replace("**", "")
    assert "the step follows the estimate by compute" in prompt
    between = said(open_page("devices.py", lang="en", estimate="prefill", prompt="200"))
    assert "The slower part changes from one card to the other" in between


def test_the_same_compute_and_more_bandwidth(open_page: Open) -> None:
    shown = metrics(open_page("devices.py", lang="en", before="h100-sxm", device="h200-sxm"))
    assert shown["compute alone"][1] == "× 1.00 (+0 %)"
    assert shown["bytes alone"][1] == "× 1.43 (+43 %)"


def test_swap_turns_the_exchange_around(open_page: Open) -> None:
    test = open_page("devices.py", lang="en", before="a100-sxm4-80gb", device="h100-sxm")
    [swap] = [button for button in test.button if button.label == "Swap"]
    swap.click().run()
    assert metrics(test)["compute alone"][0] == "19,308 → 6,088"
    assert test.selectbox(key="scene_device").value == "a100-sxm4-80gb"


def test_every_device_has_both_estimates_and_its_sources(open_page: Open) -> None:
    test = open_page("devices.py", lang="en", device="h100-sxm")
    test.session_state["two_cards"] = True  # folded away until somebody opens it
    test.run()
    without = [device for device in hardware.all() if not {"bf16", "fp16", "fp32"} & set(device.peaks)]
    assert len(test.dataframe[0].value) == len(hardware.ids()) - len(without)
    assert f"{len(without)} devices are not listed" in said(test)
    assert "1979 is the sparse bf16 rate" in said(test)
    assert "usual mistake" in said(test)
    assert "https://github.com/" in said(test)


def test_published_speeds_stand_under_the_roof(open_page: Open) -> None:
    test = open_page("devices.py", lang="en")
    [bars] = traces(test, "published_figure", "published")
    assert len(bars["x"]) == len(measurements.published().speeds)
    assert max(bars["x"]) < 100
    test.session_state["published_rows"] = True
    test.run()
    assert test.dataframe[1].value["source"].str.len().min() > 10


# ---- batch ----------------------------------------------------------------------------------------------------------


def test_a_batch_of_58_and_where_it_ends(open_page: Open) -> None:
    test = open_page("batch.py", lang="en", batch="58")
    shown = metrics(test)
    assert shown["One sequence"][0] == "64.6 tokens/s"
    assert shown["B = 58"][0] == "2,304 tokens/s"
    assert shown["Largest batch"][0] == "58"
    assert not test.error
    names = [note["text"] for note in figure(test, "memory_figure")["figure"]["layout"]["annotations"]]
    assert "memory ends at 58" in names
    assert "memory 80 GB" in names
    names = [note["text"] for note in figure(test, "intensity_figure")["figure"]["layout"]["annotations"]]
    assert "limit of decode 93" in names
    assert "ridge of NVIDIA H100 SXM 80GB, bf16: 295 FLOP/byte" in names
    test.select_slider(key="scene_batch").set_value(59).run()
    assert "at most 58 fit" in test.error[0].value


def test_the_curve_is_solid_while_it_fits_and_dotted_beyond(open_page: Open) -> None:
    test = open_page("batch.py", lang="en")
    [fits], [beyond] = (traces(test, "throughput_figure", group) for group in ("decode", "beyond"))
    assert max(fits["x"]) == 58 == min(beyond["x"])
    assert beyond["line"]["dash"] == "dot"


def test_a_measured_run_stands_at_its_batch(open_page: Open, kept_run: str) -> None:
    test = open_page("batch.py", lang="en", model="smollm2-135m", runs=kept_run)
    [point] = traces(test, "throughput_figure", "measured")
    assert point["x"] == [1.0]
    assert point["y"][0] == pytest.approx(1 / 25e-3)  # the median decode step of that run took 25 ms


def test_a_measured_run_lies_where_both_estimates_allow_it(open_page: Open, kept_run: str) -> None:
    test = open_page("devices.py", lang="en", model="smollm2-135m", runs=kept_run)
    [point] = traces(test, "devices_figure", "measured")
    assert point["x"] == point["y"] == [pytest.approx(40)]
    held = open_page("memory.py", lang="en", model="smollm2-135m", runs=kept_run)
    assert [trace["x"] for trace in traces(held, "inside_held", "measured")] == [[4], [5]]


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_both_crossovers_of_the_anchor(open_page: Open) -> None:
    test = open_page("memory.py", lang="en")
    assert "**4,608** tokens" in said(test)
    assert "**768** tokens" in said(test)
    for key, label in (("inside_moved", "equal at 4,608"), ("inside_held", "equal at 768")):
        assert [note["text"] for note in figure(test, key)["figure"]["layout"]["annotations"]] == [label]


def test_the_formats_move_the_crossover(open_page: Open) -> None:
    assert "**2,304** tokens" in said(open_page("memory.py", lang="en", state="bf16"))


def test_several_models_at_once(open_page: Open) -> None:
    names = "Qwen/Qwen3.8-27B,Qwen/Qwen3-32B,mistralai/Mistral-7B-v0.1"
    test = open_page("memory.py", lang="en", models=names, context="4096")
    table = test.dataframe[0].value.set_index("model")
    assert list(table.index) == names.split(",")
    assert table.loc["Qwen/Qwen3.8-27B", "KV a token"] == "65.5 kB"
    assert table.loc["Qwen/Qwen3-32B", "KV a token"] == "262 kB"  # four times the anchor's
    assert table.loc["Qwen/Qwen3.8-27B", "state held"] == "151 MB"
    assert table.loc["Qwen/Qwen3.8-27B", "moved a step"] == "570 MB"
    drawn = figure(test, "models_figure")["figure"]["data"]
    lines = [(trace["line"]["color"], trace["line"].get("dash")) for trace in drawn]
    assert len(set(lines)) == 3
    assert not {colour for colour, _ in lines} & {value for value in vars(palette).values() if isinstance(value, str)}
    [window] = traces(test, "models_figure", "mistralai/Mistral-7B-v0.1")
    assert window["y"][-1] == window["y"][window["x"].index(4096.0)]


def test_a_model_of_one_kind_has_no_crossover(open_page: Open) -> None:
    assert "one kind of memory only" in said(open_page("memory.py", lang="en", model="Qwen/Qwen3-32B"))


def test_no_model_chosen_says_what_to_do(open_page: Open) -> None:
    test = open_page("memory.py", lang="en")
    test.multiselect(key="scene_models").set_value([]).run()
    assert not test.exception
    assert "Choose a model" in said(test)


# ---- together -------------------------------------------------------------------------------------------------------


def test_the_model_chosen_on_one_page_is_the_model_of_the_next(open_page: Open) -> None:
    test = open_page("roofline.py", lang="en")
    press(test, "try_2_1")
    test.switch_page("batch.py").run()
    assert test.selectbox(key="scene_model").value == "Qwen/Qwen3-32B"
    assert test.select_slider(key="scene_context").value == 32_768
