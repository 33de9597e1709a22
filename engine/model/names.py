"""Every family's tensor names, turned into one: those that `Spec.tensors` lists, with the experts of a layer stacked.

A checkpoint may nest its text part, fuse or split matrices, transpose them, or number experts one by one. What
does not belong to a text step (vision tower, MTP layers) is left out. Nothing is read until it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.spec import Attention, Experts, GatedDeltaNet, Spec

Source = Callable[[], Tensor]

SKIPPED = re.compile(
    r"^(mtp|visual|model\.visual|vision_tower|model\.vision_tower|multi_modal_projector|model\.multi_modal_projector)\."
    r"|\.rotary_emb\.|\.attn\.(masked_)?bias$"
)
RENAMED = [
    (re.compile(pattern), name)
    for pattern, name in (
        # where the text part is
        (r"^(model\.language_model|language_model\.model|backbone|transformer)\.", "model."),
        (r"^language_model\.", ""),
        (r"^(wte|wpe|ln_f|h)\.", r"model.\1."),
        # GPT-2
        (r"^model\.wte\.", "model.embed_tokens."),
        (r"^model\.wpe\.", "model.embed_positions."),
        (r"^model\.(ln_f|norm_f)\.", "model.norm."),
        (r"^model\.h\.", "model.layers."),
        (r"\.ln_1\.", ".input_layernorm."),
        (r"\.ln_2\.", ".post_attention_layernorm."),
        (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
        (r"\.mlp\.c_fc\.", ".mlp.up_proj."),
        (r"\.mlp\.c_proj\.", ".mlp.down_proj."),
        # Nemotron-H and Granite
        (r"^model\.embeddings\.", "model.embed_tokens."),
        (r"\.mixer\.([qkvo]_proj)\.", r".self_attn.\1."),
        (r"\.mixer\.(up_proj|down_proj)\.", r".mlp.\1."),
        (r"\.mamba\.", ".mixer."),
        # experts
        (r"\.block_sparse_moe\.", ".mlp."),
        (r"\.mlp\.(router\.layer|router)\.", ".mlp.gate."),
        (r"\.mlp\.input_linear\.weight$", ".mlp.experts.gate_up_proj"),
        (r"\.mlp\.output_linear\.weight$", ".mlp.experts.down_proj"),
        (r"\.mlp\.gate\.e_score_correction_bias$", ".mlp.gate.bias"),
        (r"\.shared_experts\.", ".shared_expert."),
        (r"(\.experts\.\d+)\.w1\.", r"\1.gate_proj."),
        (r"(\.experts\.\d+)\.w2\.", r"\1.down_proj."),
        (r"(\.experts\.\d+)\.w3\.", r"\1.up_proj."),
        # Kimi-Linear
        (r"\.self_attn\.forget_gate\.", ".self_attn."),
    )
]
CONV1D = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
EXPERT = re.compile(r"^(?P<layer>.*\.mlp\.experts)\.(?P<index>\d+)\.(?P<part>\w+)\.weight$")


@dataclass(frozen=True, slots=True)
class Stack:
    """One matrix of all experts, [E, rows, columns], where each is stored alone: `parts` (gate above up, or one) by
    expert, as the files name them.
    """

    parts: tuple[Mapping[int, str], ...]

    @property
    def names(self) -> list[str]:
        """The stored tensors in the order they have in the stack.

        Raises:
            KeyError: an expert lacks one of its parts.
        """
        return [part[expert] for expert in sorted(self.parts[0]) for part in self.parts]


class Canonical(Mapping[str, Tensor]):
    """A checkpoint's tensors under the names this engine's readers ask for."""

    def __init__(self, tensors: Mapping[str, Tensor], spec: Spec) -> None:
        self._tensors = tensors
        self._sources: dict[str, Source] = {}
        self._stacks: dict[str, Stack] = {}
        experts: dict[str, dict[str, dict[int, str]]] = {}
        for stored in tensors:
            if SKIPPED.search(stored):
                continue
            name = renamed(stored)
            numbered = EXPERT.match(name)
            if numbered:
                parts = experts.setdefault(numbered["layer"], {})
                parts.setdefault(numbered["part"], {})[int(numbered["index"])] = stored
            else:
                # GPT-2's linears are stored [in, out].
                turned = bool(CONV1D.search(stored))
                self._sources.update(_split(name, self._read(stored, turned=turned), spec))
        for layer, parts in experts.items():
            self._stacks.update(_stacked(layer, parts))
        _repeat_folded(self._sources, spec)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._stacks:
            return self._sources[name]()
        return _joined(list(self.pieces(name)), 0).view(self.shape(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without putting a stack of experts together.

        Raises:
            KeyError, ValueError: a stack whose parts are not all there, or not of one size.
        """
        if name not in self._stacks:
            return tuple(self[name].shape)
        stack, stored = self._stacks[name], self._tensors
        shapes = [stored[part].shape for part in stack.names]
        width = len(stack.parts)
        if shapes != shapes[:width] * (len(shapes) // width) or len({columns for _, columns in shapes}) > 1:
            raise ValueError(f"the experts of {name} differ in size")
        return len(shapes) // width, sum(rows for rows, _ in shapes[:width]), shapes[0][1]

    def is_stack(self, name: str) -> bool:
        """Whether the experts of this tensor are stored one by one."""
        return name in self._stacks

    def pieces(self, name: str) -> Iterator[Tensor]:
        """The stored tensors of a stack, one below another, each read when it is its turn."""
        return (self._tensors[part] for part in self._stacks[name].names)

    def __contains__(self, name: object) -> bool:
        return name in self._sources or name in self._stacks

    def __iter__(self) -> Iterator[str]:
        yield from self._sources
        yield from self._stacks

    def __len__(self) -> int:
        return len(self._sources) + len(self._stacks)

    def _read(self, stored: str, *, turned: bool) -> Source:
        return lambda: self._tensors[stored].t() if turned else self._tensors[stored]


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """`torch.cat`; of tensors without numbers the shape alone, because torch would load its compiler to tell it."""
    if not parts[0].is_meta:
        return torch.cat(list(parts), dim)
    shape = list(parts[0].shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    return parts[0].new_empty(shape)


def renamed(stored: str) -> str:
    """A stored name in this engine's spelling."""
    for pattern, name in RENAMED:
        stored = pattern.sub(name, stored)
    return stored


def _split(name: str, read: Source, spec: Spec) -> dict[str, Source]:
    """What one stored tensor holds, by name: itself, or the matrices that were fused into it."""
    prefix, _, last = name.rpartition(".")
    inner, _, part = prefix.rpartition(".")
    if last == "A_log":
        return {name: lambda: read().flatten()}  # Kimi-Linear's is [1, 1, H, 1]
    if part == "c_attn":
        thirds = [f"{inner.removesuffix('.attn')}.self_attn.{x}_proj.{last}" for x in "qkv"]
        return _pieces(thirds, lambda: list(read().chunk(3)))
    if part == "qkv_proj":
        return _pieces([f"{inner}.{x}_proj.{last}" for x in "qkv"], lambda: _by_heads(read(), spec))
    if part == "gate_up_proj" and last == "weight":
        return _pieces([f"{inner}.{x}_proj.weight" for x in ("gate", "up")], lambda: list(read().chunk(2)))
    if part == "in_proj_qkvz":
        return _pieces([f"{inner}.in_proj_qkv.weight", f"{inner}.in_proj_z.weight"], lambda: _by_key_head(read(), spec))
    if part == "in_proj_ba":
        return _pieces([f"{inner}.in_proj_b.weight", f"{inner}.in_proj_a.weight"], lambda: _halves(read(), spec))
    if part == "conv1d" and inner.endswith("self_attn"):
        return _pieces([f"{inner}.{x}_conv1d.weight" for x in "qkv"], lambda: list(read().chunk(3)))
    if prefix.endswith("shared_mlp.input_linear"):
        shared = inner.removesuffix("shared_mlp") + _shared_place(spec)
        return _pieces([f"{shared}.{x}_proj.weight" for x in ("gate", "up")], lambda: list(read().chunk(2)))
    if prefix.endswith("shared_mlp.output_linear"):
        return {inner.removesuffix("shared_mlp") + _shared_place(spec) + ".down_proj.weight": read}
    if spec.model_type == "gpt_oss" and prefix.endswith(".mlp.experts"):
        return {name: lambda: _untangled(read(), last)}
    return {name: read}


def _pieces(names: list[str], cut: Callable[[], list[Tensor]]) -> dict[str, Source]:
    return {name: lambda index=index: cut()[index] for index, name in enumerate(names)}  # type: ignore[misc]


def _shared_place(spec: Spec) -> str:
    """Granite's shared part stands beside experts, or alone."""
    return "mlp.shared_expert" if any(isinstance(layer.feed_forward, Experts) for layer in spec.layers) else "mlp"


def _by_heads(fused: Tensor, spec: Spec) -> list[Tensor]:
    """Phi-3 stores q, k and v as one matrix, in this order."""
    mixer = next(layer.mixer for layer in spec.layers if isinstance(layer.mixer, Attention))
    return list(torch.split(fused, [mixer.q_width, mixer.kv_width, mixer.kv_width]))


def _delta(spec: Spec) -> GatedDeltaNet:
    return next(layer.mixer for layer in spec.layers if isinstance(layer.mixer, GatedDeltaNet))


def _by_key_head(fused: Tensor, spec: Spec) -> list[Tensor]:
    """Qwen3-Next stores, key head by key head, q, k, then v and z of its value heads."""
    delta = _delta(spec)
    shared = delta.value_heads // delta.key_heads * delta.value_dim
    heads = torch.unflatten(fused, 0, (delta.key_heads, -1))
    parts = torch.split(heads, [delta.key_dim, delta.key_dim, shared, shared], dim=1)
    q, k, v, z = (part.flatten(0, 1) for part in parts)
    return [_joined((q, k, v), 0), z]


def _halves(fused: Tensor, spec: Spec) -> list[Tensor]:
    """Qwen3-Next stores, key head by key head, b and then a of its value heads."""
    heads = torch.unflatten(fused, 0, (_delta(spec).key_heads, -1))
    return [part.flatten(0, 1) for part in heads.chunk(2, dim=1)]


def _untangled(stored: Tensor, name: str) -> Tensor:
    """gpt-oss stores experts as [in, out] with gate and up in turns; here [out, in], gate first."""
    tensor = stored if name.endswith("_bias") else stored.mT
    return _joined((tensor[:, ::2], tensor[:, 1::2]), 1) if name.startswith("gate_up") else tensor


def _stacked(layer: str, parts: Mapping[str, Mapping[int, str]]) -> dict[str, Stack]:
    """Experts stored one by one, as one tensor: [E, 2m, h] with gate above up, [E, h, m]."""
    up = ("gate_proj", "up_proj") if "gate_proj" in parts else ("up_proj",)
    wide = f"{layer}.gate_up_proj" if len(up) == 2 else f"{layer}.up_proj"
    return {
        wide: Stack(tuple(parts.get(name, {}) for name in up)),
        f"{layer}.down_proj": Stack((parts.get("down_proj", {}),)),
    }


def _repeat_folded(sources: dict[str, Source], spec: Spec) -> None:
    """Random weights are made from a Spec, which lists one expert for all: as many copies as there are experts."""
    for index, layer in enumerate(spec.layers):
        part = layer.feed_forward
        if not isinstance(part, Experts):
            continue
        for last in ("weight", "bias"):
            for name in (*(("gate_proj", "up_proj") if part.gated else ("up_proj",)), "down_proj"):
                prefix = f"model.layers.{index}.mlp.experts."
                one = sources.pop(f"{prefix}{name}.{last}", None)
                if one is None:
                    continue
                suffix = "" if last == "weight" else "_bias"
                target = prefix + ("gate_up_proj" if part.gated and name != "down_proj" else name) + suffix
                sources[target] = _copies(sources.get(target), one, part.experts)


def _copies(above: Source | None, one: Source, count: int) -> Source:
    def read() -> Tensor:
        single = one()
        many = single.expand(count, *single.shape)
        return many if above is None else _joined((above(), many), 1)

    return read
