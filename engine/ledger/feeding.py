"""Ops of the feed-forward parts: a dense one, or a mixture of experts."""

from __future__ import annotations

from engine.ledger.writer import Writer
from engine.spec import Experts, Mlp
from engine.spec.types import FeedForward


def write_feed_forward(writer: Writer, part: FeedForward) -> None:
    """The ops between a layer's second norm and its second residual."""
    if isinstance(part, Mlp):
        _mlp(writer, part)
    else:
        _experts(writer, part)


def _mlp(writer: Writer, part: Mlp) -> None:
    writer.linear(part.up_op)
    writer.between(_activation(part.gated, part.activation), "elementwise", part.width)
    writer.linear("down_proj")


def _experts(writer: Writer, part: Experts) -> None:
    """Every token passes `top_k` experts; the step reads as many distinct ones as its tokens are expected to touch."""
    distinct = part.expected_distinct(writer.step.choices)
    writer.linear("router")
    writer.between("route", "elementwise", part.experts)
    writer.linear("latent_down_proj")
    if part.latent and part.latent_norm:
        writer.between("latent_norm", "norm", part.latent)
    writer.experts("experts_gate_up_proj", part.top_k, distinct)
    writer.between("experts_activation", "elementwise", part.width, rows=writer.step.rows * part.top_k)
    writer.experts("experts_down_proj", part.top_k, distinct)
    writer.linear("latent_up_proj")
    if part.shared_width:
        writer.linear("shared_gate_up_proj")
        writer.between("shared_activation", "elementwise", part.shared_width)
        writer.linear("shared_down_proj")
        writer.linear("shared_gate")


def _activation(gated: bool, name: str) -> str:
    return "swiglu" if gated and name == "silu" else "activation"
