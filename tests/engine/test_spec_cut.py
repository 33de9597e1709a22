"""The first layers of every model in the catalogue are those layers, as the whole model has them."""

from __future__ import annotations

import pytest

from engine import catalogue, spec
from engine.spec.cut import first_layers


@pytest.mark.parametrize("model_id", catalogue.ids())
def test_the_first_layers_are_those_of_the_whole(model_id: str) -> None:
    whole = catalogue.load(model_id)
    config = catalogue.config(model_id)
    for count in (1, 4, whole.num_layers):
        part = spec.read(first_layers(config, count))
        assert part.layers == whole.layers[:count]
        assert (part.hidden_size, part.vocab_size, part.recipe) == (whole.hidden_size, whole.vocab_size, whole.recipe)
    assert catalogue.config(model_id) == config
