"""*Live run*'s models: what a large one needs is said and, where there is no room, refused; latent attention's form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_run import made_up_ceilings
from streamlit.testing.v1 import AppTest

from engine import broker
from engine.record import RunRequest

Open = Callable[..., AppTest]
ANCHOR = "random:Qwen/Qwen3.8-27B@layers=4"
LATENT = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 300, "kv_lora_rank": 16, "q_lora_rank": None,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1, "max_position_embeddings": 256,
}  # fmt: skip


@pytest.fixture
def with_memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """This machine with so much memory."""

    def given(memory_bytes: float) -> None:
        lab = broker.current()
        device = made_up_ceilings().device.model_copy(update={"memory_bytes": int(memory_bytes)})
        view = lab.machine().model_copy(update={"device": device})
        monkeypatch.setattr(lab, "machine", lambda: view)

    return given


@pytest.fixture
def latent_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model with latent attention among those of ROOFLINE_LAB_MODELS."""
    folder = tmp_path / "here" / "small-latent"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LATENT))
    monkeypatch.setenv("ROOFLINE_LAB_MODELS", str(folder.parent))
    return folder.name


def run_button(test: AppTest) -> bool:
    """Whether Run can be pressed."""
    return not next(button for button in test.button if button.label == "Run").disabled


def test_the_anchor_in_part_says_what_it_needs(open_page: Open, with_memory: Callable[[float], None]) -> None:
    with_memory(64e9)
    test = open_page(lang="en", model=ANCHOR, dtype="bfloat16")
    assert not test.exception
    # 4 layers of 383 million numbers, embedding and head of 1 271 million each, 2 bytes; states and cache beside them.
    assert any("Needs 8.1 GB of memory" in caption.value for caption in test.caption)
    assert run_button(test)


def test_what_does_not_fit_this_machine_cannot_be_started(
    open_page: Open, with_memory: Callable[[float], None]
) -> None:
    with_memory(8e9)
    test = open_page(lang="en", model=ANCHOR, dtype="float32")
    assert any("needs 16.3 GB of memory and this machine has 8.0 GB" in warning.value for warning in test.warning)
    assert not run_button(test)


def test_a_small_model_needs_no_words_about_memory(open_page: Open, with_memory: Callable[[float], None]) -> None:
    with_memory(8e9)
    test = open_page(lang="en", model="smollm2-135m")
    assert run_button(test)
    assert not any("GB of memory" in element.value for element in [*test.caption, *test.warning])


def test_the_form_of_latent_attention_is_a_choice_where_a_model_has_it(
    open_page: Open, latent_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RunRequest] = []
    test = open_page(lang="en", model=latent_folder, seed="1")  # a link that sets any of "More" opens it
    assert not test.exception
    monkeypatch.setattr(broker.current(), "submit", lambda request, owner: asked.append(request) or "A" * 12)
    test.selectbox(key="latent").select("re-expanded").run()
    assert test.query_params["latent"] in ("re-expanded", ["re-expanded"])
    next(button for button in test.button if button.label == "Run").click().run()
    assert [(request.model, request.latent) for request in asked] == [(latent_folder, "re-expanded")]


def test_other_models_have_no_such_choice_and_no_trace_of_it(open_page: Open) -> None:
    test = open_page(lang="en", model="tiny-3.7m", latent="re-expanded")
    assert not [box for box in test.selectbox if box.key == "latent"]
    assert test.session_state["latent"] == "absorbed"


def test_how_steps_are_timed_and_started_is_a_choice_on_cuda(
    open_page: Open, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, asked = broker.current(), list[RunRequest]()
    device = made_up_ceilings().device.model_copy(update={"kind": "cuda"})
    view = lab.machine().model_copy(update={"device": device})
    monkeypatch.setattr(lab, "machine", lambda: view)
    monkeypatch.setattr(lab, "submit", lambda request, owner: asked.append(request) or "A" * 12)
    test = open_page(lang="en", model="smollm2-135m", launches="graph")
    assert not test.exception
    test.selectbox(key="clock").select("free-running").run()
    next(button for button in test.button if button.label == "Run").click().run()
    assert [(request.clock, request.launches) for request in asked] == [("free-running", "graph")]


def test_on_a_cpu_there_is_no_such_choice_and_no_trace_of_it(
    open_page: Open, with_memory: Callable[[float], None]
) -> None:
    with_memory(8e9)  # of a CPU
    test = open_page(lang="en", model="smollm2-135m", launches="graph", clock="free-running", seed="1")
    assert not [box for box in test.selectbox if box.key in ("clock", "launches")]
    assert (test.session_state["clock"], test.session_state["launches"]) == ("synchronised", "eager")
