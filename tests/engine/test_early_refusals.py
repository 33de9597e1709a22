"""What can be said before the engine has the request is said then: no run is queued, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service import ask, new_store
from small_models import edit_config, save_llama

from engine.broker import Broker
from engine.errors import LabError
from engine.record import RunRequest


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose engine is not started: what needs it would not come back."""
    started = Broker(new_store(tmp_path), allow_paths=True, start_worker=False)
    yield started
    started.stop()


def _refused(broker: Broker, request: RunRequest) -> str:
    with pytest.raises(LabError) as caught:
        broker.submit(request, "a reader")
    assert broker.worker_pid is None  # said without the engine
    assert broker.active_run("a reader") is None
    assert broker.machine().waiting == 0
    return str(caught.value)


def test_damaged_weights_are_refused_before_they_are_queued(broker: Broker, tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for content, says in (
        (whole[:-100], "its length is not what its header says"),
        (whole[:5], "it ends before its header"),
        (b"\xff" * len(whole), "is damaged"),
        (b"", "is damaged"),
    ):
        weights.write_bytes(content)
        assert says in _refused(broker, ask(model=str(folder)))
    weights.unlink()
    assert "holds no model.safetensors" in _refused(broker, ask(model=str(folder)))


def test_a_file_that_was_sound_is_looked_at_again_when_it_changes(broker: Broker, tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model")
    edit_config(folder, max_position_embeddings=100_000)  # so long that no prompt need be tokenized to be let in
    broker.submit(ask(model=str(folder)), "another reader")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(LabError, match="is damaged"):
        broker.submit(ask(model=str(folder)), "a reader")


def test_a_prompt_beyond_the_context_is_refused_before_it_is_queued(broker: Broker) -> None:
    assert "tokens long; this model reads at most" in _refused(broker, ask("word " * 30_000))


def test_a_prompt_that_fits_is_queued(broker: Broker) -> None:
    assert broker.submit(ask("word " * 20), "a reader")
    assert broker.active_run("a reader")


def test_a_form_of_attention_that_the_model_has_not_is_refused_before_it_is_queued(broker: Broker) -> None:
    assert "has no latent attention" in _refused(broker, ask(latent="re-expanded"))
