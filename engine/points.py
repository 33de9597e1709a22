"""From measured points to the time of any op: nearest shape, interpolated over rows. Pure arithmetic, no torch.

Between two measured row counts time is taken to be a power of rows (a straight line on log-log paper, which the
roofline's own curve nearly is); beyond the last it grows as rows do, and below the first it stays.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from engine.ceilings import Ceilings, LinearPoint, SmallOpPoint
from engine.ledger import Op, StepLedger
from engine.ledger.convention import LATENT_FORMS

COVERS = {
    "attention": ("q_norm", "k_norm", "rotary", "output_gate", "kv_a_norm", "kv_b_proj"),
    "recurrence": ("f_b_proj", "g_b_proj", "gated_norm"),
    "experts": ("route", "experts_activation", "experts_down_proj"),
}
"""The ledger's ops that lie in one lap with another, where layers of any family are walked, by the point's kind."""

Curve = list[tuple[float, float]]
Point = TypeVar("Point", LinearPoint, SmallOpPoint)
Key = TypeVar("Key")


def log_interpolate(x: float, curve: Curve) -> float:
    """y at x on straight lines in log-log space; flat below the first point, proportional to x beyond the last."""
    place = bisect.bisect_left(curve, x, key=lambda point: point[0])
    if place == 0:
        return curve[0][1]
    if place == len(curve):
        return curve[-1][1] * x / curve[-1][0]
    (left, low), (right, high) = curve[place - 1], curve[place]
    share = math.log(x / left) / math.log(right / left)
    return low * math.pow(high / low, share)


def line_interpolate(x: float, curve: Curve) -> float:
    """y at x on straight lines; flat below the first point, beyond the last on its line's slope, but never downhill."""
    place = bisect.bisect_left(curve, x, key=lambda point: point[0])
    if place == 0 or len(curve) == 1:
        return curve[0][1]
    (left, low), (right, high) = curve[place - 1 : place + 1] if place < len(curve) else curve[-2:]
    slope = (high - low) / (right - left)
    if place == len(curve):
        return high + max(0.0, slope) * (x - right)
    return low + slope * (x - left)


def never_falling(curve: Curve) -> Curve:
    """The nearest curve that nowhere falls as x grows (least squares; neighbours in the wrong order are averaged).

    More rows, positions or tokens are never less work: where measured points say so, the machine was unsteady.
    Pool adjacent violators, Barlow, Bartholomew, Bremner and Brunk (1972).
    """
    pools: list[tuple[float, int]] = []
    for _, y in curve:
        total, count = y, 1
        while pools and pools[-1][0] * count > total * pools[-1][1]:
            before, many = pools.pop()
            total, count = total + before, count + many
        pools.append((total, count))
    levels = [total / count for total, count in pools for _ in range(count)]
    return [(x, level) for (x, _), level in zip(curve, levels, strict=True)]


class Points:
    """The points of one dtype measured in the working set nearest to `working_set_bytes`.

    form: how latent attention runs, where a model has it, or the format of a cache that is narrower than `dtype`.
    covered: the ops that are part of another's time.
    """

    def __init__(self, ceilings: Ceilings, dtype: str, working_set_bytes: float, form: str = "absorbed") -> None:
        linear = _nearest_set(ceilings.linear, dtype, working_set_bytes)
        small = _nearest_set(ceilings.small_ops, dtype, working_set_bytes)
        self._linear = _curves(linear, lambda p: (p.k, p.n), lambda p: p.rows)
        forms = ("", form) if form in LATENT_FORMS else (form,)
        attention = [p for p in small if p.kind == "attention" and p.form in forms]
        decode = [p for p in attention if p.rows == p.batch]
        prefill = [p for p in attention if p.rows > p.batch == 1]
        recurrent = [p for p in small if p.kind in ("conv", "recurrence")]
        apart = ("attention", "conv", "recurrence", "experts")
        between = [p for p in small if p.kind not in apart]
        self._between = _curves(between, lambda p: (p.kind, p.width), lambda p: p.rows)
        self._decode = _curves(decode, lambda p: p.batch, lambda p: p.context)
        self._prefill = sorted((p.context, p.rows, p.time_ns) for p in prefill)
        # A prompt's tokens are one sequence's; in decode there are as many sequences as rows.
        self._recurrent = _curves(recurrent, lambda p: (p.kind, p.width, p.rows == p.batch), lambda p: p.rows)
        self._experts = sorted((p.rows / p.distinct, p.time_ns / p.distinct) for p in small if p.kind == "experts")
        self.covered = frozenset(name for point in small for name in point.covers)

    def op_ns(self, op: Op, step: StepLedger) -> float | None:
        """Time of one occurrence of an op of a step, or None where nothing like it was measured."""
        if op.distinct:
            return self.experts_ns(op.rows, op.distinct)
        if op.kind == "linear":
            return self.linear_ns(op.rows, op.k, op.n)
        if op.kind == "attention":
            if step.tokens == 1:
                return self.decode_attention_ns(step.batch, op.context)
            return self._chunk_attention_ns(op, step.batch)
        if op.kind in ("conv", "recurrence"):
            return self.recurrent_ns(op.kind, op.n, step.batch, op.rows // step.batch)
        return self.between_ns(point_kind(op), op.rows, op.n)

    def linear_ns(self, rows: float, k: int, n: int) -> float | None:
        """Time of one `rows` x [k, n] product; that of the shape nearest in size, scaled by size, if need be."""
        if not self._linear:
            return None
        shape = min(self._linear, key=lambda known: (abs(math.log(known[0] * known[1] / (k * n))), known != (k, n)))
        return log_interpolate(rows, self._linear[shape]) * (k * n) / (shape[0] * shape[1])

    def between_ns(self, kind: str, rows: float, width: int) -> float | None:
        """Time of one op between the linears over `rows` x `width` elements.

        Another width stands for this one at as many rows as make the same number of elements: what a call costs
        with next to nothing to do is the same for both.
        """
        widths = [known for name, known in self._between if name == kind]
        if not widths:
            return None
        nearest = min(widths, key=lambda known: abs(math.log(known / width)))
        return log_interpolate(rows * width / nearest, self._between[kind, nearest])

    def decode_attention_ns(self, batch: int, context: float) -> float | None:
        """Time of one layer's attention of one new position in each of `batch` sequences.

        A straight line in context (a call, and the keys and values to read), a power between measured batches.
        A batch measured at one context grows with it as the nearest batch does that was measured at several: less of
        its time is the call's than a single sequence's.
        """
        if not self._decode:
            return None
        several = [known for known, curve in self._decode.items() if len(curve) > 1]

        def at(known: int, curve: Curve) -> float:
            if not several or len(curve) > 1:
                return line_interpolate(context, curve)
            like = self._decode[min(several, key=lambda other: abs(math.log(other / known)))]
            seen, time_ns = curve[0]
            return time_ns * line_interpolate(context, like) / line_interpolate(seen, like)

        by_batch = sorted((float(known), at(known, curve)) for known, curve in self._decode.items())
        return log_interpolate(batch, by_batch)

    def prefill_attention_ns(self, batch: int, tokens: float, context: float | None = None) -> float | None:
        """Time of one layer's attention of a prompt over itself, for each of `batch` prompts.

        A power of the length between the points; beyond the longest, pairs of positions set the pace: the square of
        the length, or, within a window (`context` below `tokens`), the length.
        """
        # Up to its window's length a layer does what one without a window does.
        window = context if context is not None and context < tokens else math.inf
        reach = {rows: time for seen, rows, time in self._prefill if seen == min(rows, window)}
        if not reach:
            return None
        curve = never_falling(sorted((float(rows), time) for rows, time in reach.items()))
        longest, time = curve[-1]
        power = 2 if window == math.inf else 1
        alone = time * (tokens / longest) ** power if tokens > longest else log_interpolate(tokens, curve)
        return alone * batch

    def _chunk_attention_ns(self, op: Op, batch: int) -> float | None:
        """A prompt's, or a chunk's: the longer prompt up to its end, without the one before it."""
        tokens = op.rows // batch
        if op.context <= tokens:
            return self.prefill_attention_ns(batch, tokens, op.context)
        up_to_end, before = (self.prefill_attention_ns(batch, n, n) for n in (op.context, op.context - tokens))
        return None if up_to_end is None or before is None else up_to_end - before

    def recurrent_ns(self, kind: str, width: int, batch: int, tokens: float) -> float | None:
        """Time of one layer's recurrence, or the convolution before it, for `tokens` new tokens a sequence."""
        alone = tokens == 1
        widths = [known for name, known, one in self._recurrent if name == kind and one == alone]
        if not widths:
            return None
        nearest = min(widths, key=lambda known: abs(math.log(known / width)))
        time = log_interpolate(batch if alone else tokens, self._recurrent[kind, nearest, alone])
        return time * width / nearest * (1 if alone else batch)

    def experts_ns(self, rows: float, distinct: float) -> float | None:
        """Time of one layer's routed experts: `rows` choices that fall on `distinct` of them.

        Each expert costs what one costs that has as many rows to do: its weights are read once for all of them.
        """
        if not self._experts:
            return None
        return distinct * log_interpolate(rows / distinct, self._experts)


def point_kind(op: Op) -> str:
    """Elementwise ops are told apart by name; norms, rotary and embedding are what their kind says."""
    return op.name if op.kind == "elementwise" else op.kind


def _nearest_set(points: Sequence[Point], dtype: str, working_set_bytes: float) -> list[Point]:
    same = [point for point in points if point.dtype == dtype]
    if not same:
        return []

    def distance(point: Point) -> float:
        return abs(math.log(max(point.working_set_bytes, 1) / max(working_set_bytes, 1)))

    nearest = min(same, key=distance).working_set_bytes
    return [point for point in same if point.working_set_bytes == nearest]


def _curves(points: Iterable[Point], key: Callable[[Point], Key], x: Callable[[Point], int]) -> dict[Key, Curve]:
    curves: dict[Key, Curve] = {}
    for point in points:
        curves.setdefault(key(point), []).append((x(point), point.time_ns))
    return {key: never_falling(sorted(curve)) for key, curve in curves.items()}
