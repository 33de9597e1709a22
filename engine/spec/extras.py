"""Parts of a checkpoint that are held in memory but not read by a text step: vision towers and MTP layers."""

from __future__ import annotations

from engine.spec.config import Fields
from engine.spec.parts import Weight
from engine.spec.types import Extra, Layer, Spec


def qwen_vision(vision: Fields, *, out: int) -> Extra:
    """The tower of Qwen3-VL and Qwen3.5: patches, learned positions, blocks, and the merger into the text's width."""
    hidden, width, depth = vision.size("hidden_size"), vision.size("intermediate_size"), vision.size("depth")
    patch = vision.size("in_channels", default=3) * vision.size("temporal_patch_size") * vision.size("patch_size") ** 2
    merged = hidden * vision.size("spatial_merge_size") ** 2
    target = vision.size("out_hidden_size", default=out)
    block = _affine(hidden, 3 * hidden) + _affine(hidden, hidden) + _affine(hidden, width) + _affine(width, hidden)
    # Layer norms have a weight and a bias: two in a block, one in the merger.
    blocks = depth * (block + 2 * 2 * hidden)
    positions = vision.size("num_position_embeddings") * hidden
    merger = 2 * hidden + _affine(merged, merged) + _affine(merged, target)
    return Extra("vision tower", _affine(patch, hidden) + positions + blocks + merger)


def siglip_vision(*, out: int) -> Extra:
    """Gemma 3's tower: SigLIP-So400m at 896 pixels (27 layers of 1152, patches of 14), and its projector."""
    hidden, width, depth, patch, side = 1152, 4304, 27, 14, 64
    block = 4 * _affine(hidden, hidden) + _affine(hidden, width) + _affine(width, hidden) + 2 * 2 * hidden
    embedding = _affine(3 * patch * patch, hidden) + side * side * hidden
    return Extra("vision tower", embedding + depth * block + 2 * hidden + hidden * out + hidden)


def qwen_mtp(spec: Spec, layer: Layer, depth: int, *, own_table: bool) -> Extra:
    """Qwen3.5's multi-token prediction: one projection of (hidden, embedding), `depth` layers, three norms."""
    hidden = spec.hidden_size
    weights = spec.layer_weights(layer) * depth
    parameters = 2 * hidden * hidden + 3 * hidden + sum(weight.parameters for weight in weights)
    table = spec.vocab_size * hidden if own_table else 0
    return Extra("multi-token prediction", parameters + table)


def deepseek_mtp(spec: Spec, layer: Layer, depth: int) -> tuple[Extra, ...]:
    """DeepSeek-V3's, with its own copies of embedding and head: a projection, a layer, and three norms each."""
    hidden, table = spec.hidden_size, spec.vocab_size * spec.hidden_size
    projection = Weight("eh_proj.weight", (hidden, 2 * hidden), "mtp", "attention")
    weights = (projection, *spec.layer_weights(layer)) * depth
    parameters = sum(weight.parameters for weight in weights) + depth * (3 * hidden + 2 * table)
    return (Extra("multi-token prediction", parameters, weights),)


def _affine(inputs: int, outputs: int) -> int:
    """A matrix with its bias."""
    return inputs * outputs + outputs
