"""From a Scene to what the engine needs: a Spec, a device, formats, a convention. One place for the four pages."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from engine import catalogue, hardware, spec
from engine.ceilings import Ceilings
from engine.errors import N_, LabError
from engine.ledger import Convention, Formats, decode
from engine.ledger.convention import named
from engine.measured_device import THIS_MACHINE, MeasuredDevice
from engine.predict import DeviceLike, predict, roof_of
from engine.roofline import Roof
from engine.spec import Spec
from pages._parts.scene import CUSTOM, OWN, Scene, unpack_config

Named = Any  # a device that also has a name: hardware.Device or MeasuredDevice


class NotMeasuredError(LabError):
    """This machine is asked about and has no ceilings yet."""


@dataclass(frozen=True)
class Asked:
    """What is asked about, resolved. ceilings: this machine's, where it is the device."""

    scene: Scene
    label: str
    spec: Spec
    device: Named
    formats: Formats
    convention: Convention
    roof: Roof
    dtype: str
    ceilings: Ceilings | None

    def predict(self, **changed: int) -> dict[str, Any]:
        """The engine's document for this scene, or for another prompt, context or batch."""
        scene = self.scene
        asked: dict[str, Any] = {
            "prompt_tokens": scene.prompt,
            "context": scene.context,
            "batch": scene.batch,
        } | changed
        formats, device = self.formats, self.device
        if changed and isinstance(device, MeasuredDevice) and self.ceilings is not None:
            # Another batch or context is another amount to read over and over, at a rate of its own.
            other = replace(scene, context=asked["context"], batch=asked["batch"])
            device = device_of(other, THIS_MACHINE, self.ceilings, self.spec, formats, self.convention)
        return predict(
            self.spec,
            device,
            preset=scene.preset,
            weights=formats.weights,
            kv=formats.kv,
            state=formats.state,
            **asked,
        )


def resolve(scene: Scene, ceilings: Ceilings | None, device_id: str | None = None) -> Asked:
    """Look everything up.

    Raises:
        LabError: a config or a device that cannot be; NotMeasuredError: this machine, before its ceilings are known.
    """
    found, label = model_of(scene)
    formats = formats_of(scene, found)
    convention = named(scene.preset)
    device = device_of(scene, device_id or scene.device, ceilings, found, formats, convention)
    roof, dtype = roof_of(device, formats)
    return Asked(scene, label, found, device, formats, convention, roof, dtype, ceilings)


def model_of(scene: Scene) -> tuple[Spec, str]:
    """The scene's model and its name; the default model where a config of one's own has not been pasted yet."""
    if scene.model != CUSTOM:
        return catalogue.load(scene.model), scene.model
    if not scene.config:
        return catalogue.load(Scene().model), Scene().model
    found = _of_config(scene.config)
    return found, found.architecture or found.model_type


@lru_cache(maxsize=32)
def _of_config(packed: str) -> Spec:
    return spec.read(json.loads(unpack_config(packed)))


def formats_of(scene: Scene, found: Spec) -> Formats:
    """The scene's formats for a model: its own where none is chosen."""
    chosen = {
        name: None if value == OWN else value
        for name, value in (("weights", scene.weights), ("kv", scene.kv), ("state", scene.state))
    }
    return Formats.own(found, **chosen)


def device_of(
    scene: Scene, device_id: str, ceilings: Ceilings | None, found: Spec, formats: Formats, convention: Convention
) -> Named:
    """A device by its id. This machine reads at the rate measured for what one decode step touches."""
    if device_id == THIS_MACHINE:
        if ceilings is None:
            raise NotMeasuredError(
                N_("This machine has not been measured yet; measure it once, and it is one of the devices.")
            )
        step = decode(found, scene.context + 1, batch=scene.batch, formats=formats, convention=convention)
        return MeasuredDevice.of(ceilings, step.working_set_bytes)
    if device_id == CUSTOM:
        rate = f"{formats.plain_format}_flops_per_s"
        typed = {"name": "custom", rate: scene.tflops * 1e12, "bandwidth_bytes_per_s": scene.gbs * 1e9}
        return hardware.from_form(typed | {"memory_bytes": round(scene.gb * 1e9)})
    return hardware.load(device_id)


def all_devices(
    scene: Scene, ceilings: Ceilings | None, found: Spec, formats: Formats, convention: Convention
) -> list[DeviceLike]:
    """Every listed device, and this machine where it has been measured."""
    here = [] if ceilings is None else [device_of(scene, THIS_MACHINE, ceilings, found, formats, convention)]
    return [*here, *hardware.all()]
