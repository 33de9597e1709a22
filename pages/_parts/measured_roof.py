"""This machine's measured roof for the scene another device is shown for, so that both ridges stand side by side."""

from __future__ import annotations

from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.measured_device import THIS_MACHINE
from engine.predict import roof_of
from engine.roofline import Roof
from pages._parts.asked import Asked, device_of


def here_beside(asked: Asked, ceilings: Ceilings | None) -> Roof | None:
    """None where this machine is the device shown, has not been measured, or cannot compute in these formats."""
    if ceilings is None or asked.device.id == THIS_MACHINE:
        return None
    device = device_of(asked.scene, THIS_MACHINE, ceilings, asked.spec, asked.formats, asked.convention)
    try:
        return roof_of(device, asked.formats)[0]
    except LabError:
        return None
