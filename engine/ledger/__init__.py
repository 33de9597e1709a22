"""FLOPs, bytes moved and bytes held of one prefill or decode step, op by op, from a Spec alone.

    >>> step = decode(spec, 4097, batch=8)
    >>> step.flops, step.bytes.kv_read, step.bytes.total

Read, written and resident are three numbers. What is not counted: activations between ops (see `Op`) and the rotary
tables, which are computed from two numbers and stay in cache. Knows nothing of devices or times.
"""

from __future__ import annotations

from engine.errors import LabError
from engine.ledger.chunked import merged, passes
from engine.ledger.convention import CONVENTIONS, ENGINE, LESSON, TRANSFORMERS, Convention, explain, named
from engine.ledger.feeding import write_feed_forward
from engine.ledger.formats import BF16, KV_LAYOUTS, PLAIN_BYTES, WEIGHT_LAYOUTS, Formats
from engine.ledger.mixing import write_mixer
from engine.ledger.ops import Amount, Op, StepLedger, Traffic
from engine.ledger.plan import Plan, plan
from engine.ledger.resident import Resident, resident
from engine.ledger.writer import Step, Writer
from engine.spec import Layer, Spec

__all__ = [
    "BF16",
    "CONVENTIONS",
    "ENGINE",
    "KV_LAYOUTS",
    "LESSON",
    "PLAIN_BYTES",
    "TRANSFORMERS",
    "WEIGHT_LAYOUTS",
    "Amount",
    "Convention",
    "Formats",
    "Op",
    "Resident",
    "StepLedger",
    "Traffic",
    "decode",
    "explain",
    "prefill",
    "resident",
]

LOGIT_BYTES = 4  # the engine hands logits to the sampler in FP32


def prefill(
    spec: Spec,
    tokens: Amount,
    *,
    batch: Amount = 1,
    formats: Formats = BF16,
    convention: str | Convention = ENGINE,
    alike: bool = False,
    rows: int | None = None,
) -> StepLedger:
    """The step that reads a prompt of `tokens` tokens, `batch` prompts at once.

    alike: the prompts are the same one, so that a token chooses the same experts in each.
    rows: the most tokens, of all prompts together, that one pass over the layers takes; a longer prompt is read in
        several, and weights once in each. None reads any prompt in one, and is needed for whole grids.

    Raises:
        LabError: tokens or batch below 1, or no convention of that name.
    """
    _at_least_one(tokens, "prompt tokens")
    _at_least_one(batch, "batch")
    whole = Step("prefill", tokens, tokens, batch, formats, named(convention), alike)
    if rows is None or tokens * batch <= rows:
        return _count(spec, whole)
    return merged([_count(spec, part) for part in passes(whole, rows)])


def decode(
    spec: Spec,
    context: Amount,
    *,
    batch: Amount = 1,
    formats: Formats = BF16,
    convention: str | Convention = ENGINE,
    alike: bool = False,
) -> StepLedger:
    """The step that makes one token for each of `batch` sequences.

    context: positions attended, the new token included (so context - 1 are read from the cache).
    alike: the sequences are copies of one another, so that all choose the same experts.

    Raises:
        LabError: context or batch below 1, or no convention of that name.
    """
    _at_least_one(context, "context")
    _at_least_one(batch, "batch")
    return _count(spec, Step("decode", 1, context, batch, formats, named(convention), alike))


def _count(spec: Spec, step: Step) -> StepLedger:
    planned = plan(spec, step.formats)
    ops = _before(spec, step, planned)
    for layer, count, stored in planned.layers:
        writer = Writer(step, stored, count)
        _layer(writer, spec, layer)
        ops += writer.ops
    ops += _after(spec, step, planned) if step.last else []
    return StepLedger(step.phase, step.convention.name, step.tokens, step.context, step.batch, tuple(ops))


def _before(spec: Spec, step: Step, planned: Plan) -> list[Op]:
    """The look-up of the tokens' embeddings: one row of the table a token."""
    rows = step.rows if step.convention.embedding_rows else 0
    table = planned.outer["embedding"]
    row_bytes = table.matrix_bytes // table.n
    # A learned position is looked up beside each token.
    per_token = row_bytes * (2 if spec.positions else 1)
    return [Op("embedding", "embedding", 1, step.rows, 0, spec.hidden_size, 0, Traffic(weights=rows * per_token))]


def _layer(writer: Writer, spec: Spec, layer: Layer) -> None:
    hidden = spec.hidden_size
    writer.norm("input_norm", hidden)
    if layer.mixer is not None:
        write_mixer(writer, layer.mixer)
        if spec.norm.sandwich:
            writer.norm("mixer_output_norm", hidden)
        writer.between("residual", "elementwise", hidden)
    if layer.feed_forward is not None:
        if layer.mixer is not None:
            writer.norm("post_attention_norm", hidden)
        write_feed_forward(writer, layer.feed_forward)
        if spec.norm.sandwich:
            writer.norm("feed_forward_output_norm", hidden)
        writer.between("residual", "elementwise", hidden)


def _after(spec: Spec, step: Step, planned: Plan) -> list[Op]:
    """The final norm and the head: at all positions, or only where a next token is wanted."""
    writer = Writer(step, planned.outer)
    positions = step.rows if step.convention.head == "all" else step.batch
    writer.norm("final_norm", spec.hidden_size, rows=positions)
    logits = LOGIT_BYTES * spec.vocab_size * positions if step.convention.logits else 0
    writer.linear("lm_head", positions, logits=logits)
    return writer.ops


def _at_least_one(amount: Amount, name: str) -> None:
    if isinstance(amount, int) and amount < 1:
        raise LabError("The {name} is {amount}; it has to be at least 1.", name=name, amount=amount)
