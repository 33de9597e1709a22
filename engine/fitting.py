"""Do a checkpoint's tensors fit its config? Judged by names and shapes alone, before any weight is read.

Families spell names differently and fuse or split matrices, so both sides, what the files hold and what the Spec
asks for, go through the engine's own renaming as tensors without numbers (torch's "meta" device), and then compare.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from engine.errors import LabError
from engine.model.names import Canonical
from engine.model.supported import PLAIN
from engine.spec import Spec

Shapes = Mapping[str, tuple[int, ...]]

_LAYER = re.compile(r"^model\.layers\.(\d+)\.")


def wanted_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Every tensor this engine reads for a Spec, by its own name: the experts of a layer are one tensor."""
    return dict(spec.tensors()) if spec.model_type in PLAIN else _canonical(spec.tensors(), spec)


def check(spec: Spec, stored: Shapes, files: Mapping[str, str]) -> None:
    """Whether the stored tensors are exactly the text model that config.json describes.

    Not asked for and ignored: the second copy of a tied head, rotary frequencies that old files carry, vision towers
    and MTP layers.

    Args:
        spec: what config.json says.
        stored: shapes by the files' own names.
        files: the name of each one's file, for the sentence.

    Raises:
        LabError: what is missing, has no place, or has another shape.
    """
    wanted = wanted_shapes(spec)
    found = dict(stored) if spec.model_type in PLAIN else _canonical(stored, spec)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise LabError(
            "The weight files have no tensor {name} ({count} in all are missing): "
            "they are incomplete, or config.json belongs to another model.",
            name=missing[0],
            count=len(missing),
        )
    extra = [name for name in found if name not in wanted and not ignored(name, spec)]
    if extra:
        raise LabError(
            "The weight files have a tensor {name} ({count} such in all) that config.json leaves no place for.",
            name=extra[0],
            count=len(extra),
        )
    for name, shape in wanted.items():
        if found[name] != shape:
            raise LabError(
                "Tensor {name} has the shape {found} in {file} and {wanted} by config.json: "
                "one of the two belongs to another model.",
                name=name,
                found=_shown(found[name]),
                wanted=_shown(shape),
                file=files.get(name) or next(iter(files.values()), "the files"),
            )


def _canonical(shapes: Shapes, spec: Spec) -> dict[str, tuple[int, ...]]:
    """The same tensors as the engine names them.

    Raises:
        LabError: fused or split tensors whose shapes cannot be taken apart.
    """
    named = Canonical({name: torch.empty(shape, device="meta") for name, shape in shapes.items()}, spec)
    found = {}
    for name in named:
        try:
            found[name] = named.shape(name)
        except (RuntimeError, ValueError, IndexError, KeyError, StopIteration) as error:
            raise LabError(
                "The weight files' tensor {name} cannot be put together as config.json announces it: "
                "one of the two belongs to another model.",
                name=name,
            ) from error
    return found


def ignored(name: str, spec: Spec) -> bool:
    """Whether a tensor may be there and is not read."""
    if (spec.tied and name == "lm_head.weight") or name.endswith(".rotary_emb.inv_freq"):
        return True
    # DeepSeek numbers its MTP layers on from the last layer.
    layer = _LAYER.match(name)
    return bool(layer and spec.extras and int(layer[1]) >= spec.num_layers)


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
