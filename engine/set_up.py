"""A loaded model set to what a run asks for: the form of its latent attention, how its steps are started, how timed."""

from __future__ import annotations

from engine.errors import LabError
from engine.free_run import check_runs_freely
from engine.model import Model
from engine.model.decoder import Decoder, Launches
from engine.model.hybrid import HybridDecoder
from engine.model.latent import Form
from engine.record import RunRequest
from engine.request import CLOCKS, LAUNCHES


def set_up(model: Model, asked: RunRequest, name: str) -> None:
    """Set a model to what was asked.

    Args:
        name: what the model is called where it cannot be.

    Raises:
        LabError: it cannot be set so, or not on this device.
    """
    if isinstance(model, HybridDecoder):
        model.use_latent_form(form(asked.latent))
    if isinstance(model, Decoder):
        model.use_launches(_launches(asked.launches))
    elif asked.launches != LAUNCHES[0]:
        raise LabError("Only the steps of dense decoders can be recorded as a graph; {model} is not one.", model=name)
    if asked.clock != CLOCKS[0]:
        check_runs_freely(model)


def form(asked: str) -> Form:
    """A form of latent attention that `request.check` has let pass."""
    return "re-expanded" if asked == "re-expanded" else "absorbed"


def _launches(asked: str) -> Launches:
    """A way of starting steps that `request.check` has let pass."""
    return "graph" if asked == "graph" else "compiled" if asked == "compiled" else "eager"
