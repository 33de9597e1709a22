"""The tensors that weight files mean, where that differs from what they hold: compressed ones come with their scales.

`meant` pairs them by name and shape from the headers alone; each result knows how to become numbers. Formats: fp32,
bf16 and fp16 as they are, FP8 with `X_scale_inv` beside X (DeepSeek, Qwen), MXFP4 as `X_blocks` and `X_scales`
(gpt-oss).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.dequantise import from_fp8, from_mxfp4
from engine.errors import LabError
from engine.weight_files import Stored

PLAIN = ("F32", "BF16", "F16")
FP8 = ("F8_E4M3", "F8_E5M2")
DEFAULT_BLOCK = (128, 128)
MXFP4_BYTES = 16
"""Bytes of one group of 32 numbers."""

_SCALES = ("_scale_inv", "_scale")


@dataclass(frozen=True, slots=True)
class Meant:
    """One tensor of the model: its shape, the stored tensors that hold it, and what makes numbers of them."""

    shape: tuple[int, ...]
    file: str
    parts: tuple[str, ...]
    decode: Callable[[Sequence[Tensor]], Tensor]


def meant(stored: Mapping[str, Stored], config: Mapping[str, Any]) -> dict[str, Meant]:
    """Every tensor of the model in these files, by its own name.

    Args:
        stored: what the headers say.
        config: config.json, for the size of FP8's blocks.

    Raises:
        LabError: a format that is not read, or a compressed tensor without the scales it needs.
    """
    found: dict[str, Meant] = {}
    for name, tensor in stored.items():
        if tensor.dtype in FP8:
            found[name] = _fp8(name, stored, _block(config))
        elif name.endswith("_blocks") and tensor.dtype == "U8":
            found[name.removesuffix("_blocks")] = _mxfp4(name, stored)
        elif not _belongs_to_another(name, stored):
            if tensor.dtype not in PLAIN:
                raise LabError(
                    "Tensor {name} is stored as {dtype}; this engine reads {known}.",
                    name=name,
                    dtype=tensor.dtype,
                    known=", ".join((*PLAIN, "FP8 in blocks, MXFP4")),
                )
            found[name] = Meant(tensor.shape, tensor.file.name, (name,), _as_it_is)
    return found


def _as_it_is(parts: Sequence[Tensor]) -> Tensor:
    return parts[0]


def _belongs_to_another(name: str, stored: Mapping[str, Stored]) -> bool:
    """Whether it is the scale of a compressed tensor. Scales of activations are for kernels that compute in FP8."""
    if name.endswith((".input_scale", ".activation_scale")):
        return True
    if name.endswith("_scales"):
        return name.removesuffix("_scales") + "_blocks" in stored
    return any(name.endswith(end) and stored.get(name.removesuffix(end), stored[name]).dtype in FP8 for end in _SCALES)


def _fp8(name: str, stored: Mapping[str, Stored], block: tuple[int, int]) -> Meant:
    scale = next((name + end for end in _SCALES if name + end in stored), None)
    if scale is None:
        raise LabError("Tensor {name} is stored as FP8 without {scale}.", name=name, scale=name + _SCALES[0])
    shape, given = stored[name].shape, stored[scale].shape
    one = given in ((), (1,))
    # Blocks cover the last two dimensions; what is before them (experts) has scales of its own.
    blocks = tuple(-(-size // by) for size, by in zip(shape[-2:], block, strict=False))
    if not one and (len(shape) < 2 or given != (*shape[:-2], *blocks)):
        raise _misfit(scale, given, (*shape[:-2], *blocks), name)
    if stored[scale].dtype not in PLAIN:
        raise LabError(
            "Tensor {name} is stored as {dtype}; this engine reads {known}.",
            name=scale,
            dtype=stored[scale].dtype,
            known=", ".join(PLAIN),
        )
    return Meant(shape, stored[name].file.name, (name, scale), lambda parts: from_fp8(parts[0], parts[1], block))


def _mxfp4(name: str, stored: Mapping[str, Stored]) -> Meant:
    scale = name.removesuffix("_blocks") + "_scales"
    if scale not in stored:
        raise LabError("Tensor {name} is stored as MXFP4 without {scale}.", name=name, scale=scale)
    shape, given = stored[name].shape, stored[scale].shape
    if len(shape) < 3 or shape[-1] != MXFP4_BYTES or given != shape[:-1] or stored[scale].dtype != "U8":
        raise _misfit(scale, given, shape[:-1], name)
    *front, rows, groups, _ = shape
    # gpt-oss's uncompressed files have these matrices the other way round, [in, out], and so has whoever reads them.
    meant_shape = (*front, 2 * MXFP4_BYTES * groups, rows)
    return Meant(meant_shape, stored[name].file.name, (name, scale), lambda parts: from_mxfp4(parts[0], parts[1]).mT)


def _misfit(scale: str, given: tuple[int, ...], wanted: tuple[int, ...], name: str) -> LabError:
    return LabError(
        "The scales {scale} have the shape {found}; {name} needs {wanted}.",
        scale=scale,
        found=" x ".join(map(str, given)),
        wanted=" x ".join(map(str, wanted)),
        name=name,
    )


def _block(config: Mapping[str, Any]) -> tuple[int, int]:
    """FP8's block as quantization_config says, wherever a family keeps that.

    Raises:
        LabError: a block that is not two whole numbers.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, Mapping) else {}):
        settings = part.get("quantization_config")
        block = settings.get("weight_block_size") if isinstance(settings, Mapping) else None
        if block is None:
            continue
        if isinstance(block, list) and len(block) == 2 and all(type(size) is int and size > 0 for size in block):
            return (block[0], block[1])
        raise LabError(
            "The config's {key} is {value}; it has to be two whole numbers.",
            key="weight_block_size",
            value=str(block)[:60],
        )
    return DEFAULT_BLOCK
