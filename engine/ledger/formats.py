"""Storage formats: what a matrix, a cached key or a state takes in bytes, scales included.

Every format is a block layout, so that sizes are exact and not a rounded "bits per weight". Sources: ggml's block
structs for the GGUF types, the OCP MX specification for MXFP4, NVIDIA's NVFP4 description, the checkpoints' own
quantization_config for FP8 in 128 x 128 blocks; the integer formats are stated by their name.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.ceilings import multiplication
from engine.errors import LabError
from engine.spec import Spec
from engine.spec.common import MATRICES
from engine.spec.parts import Role, Weight

PLAIN_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row of `k` numbers is stored: blocks of `block` numbers in `block_bytes` (their scales inside).

    row_bytes: a scale per row on top. tensor_bytes: a scale per tensor. tile_rows: rows that share one block scale of
    `tile_bytes` per `block` columns (FP8's 128 x 128 tiles).
    """

    block: int
    block_bytes: int
    row_bytes: int = 0
    tensor_bytes: int = 0
    tile_rows: int = 0
    tile_bytes: int = 0
    label: str = ""

    def size(self, rows: int, k: int) -> int:
        """Bytes of a [rows, k] matrix; a row that does not fill its last block is padded to it."""
        blocks = -(-k // self.block)
        tiles = -(-rows // self.tile_rows) * blocks if self.tile_rows else 0
        # Tiled formats store exactly k numbers a row; only their scales come in blocks.
        row = k if self.tile_rows else blocks * self.block_bytes
        return rows * (row + self.row_bytes) + tiles * self.tile_bytes + self.tensor_bytes


def _grouped(bits: int, group: int, scale_bits: int, zero_bits: int = 0) -> Layout:
    """`bits` a weight in groups along a row, each with a scale and perhaps a zero point.

    Bits that do not fill a byte (a 4-bit zero point) are counted over two groups, as packers store them.
    """
    total = group * bits + scale_bits + zero_bits
    span = 1 if total % 8 == 0 else 2
    return Layout(group * span, total * span // 8)


WEIGHT_LAYOUTS: dict[str, Layout] = {
    "fp32": Layout(1, 4),
    "bf16": Layout(1, 2),
    "fp16": Layout(1, 2),
    "fp8": Layout(128, 128, tile_rows=128, tile_bytes=4),  # FP32 scale per 128 x 128
    "fp8-tensor": Layout(1, 1, tensor_bytes=4),
    "int8": Layout(1, 1, row_bytes=2),  # FP16 scale per output channel
    "int8-g128": _grouped(8, 128, 16),
    "int4": _grouped(4, 128, 16),  # symmetric, FP16 scale per 128
    "int4-g32": _grouped(4, 32, 16),
    "int4-g64": _grouped(4, 64, 16),
    "int4-g128": _grouped(4, 128, 16),
    "int4-g128-asym": _grouped(4, 128, 16, 4),  # and a 4-bit zero point
    "int4-g64-mlx": _grouped(4, 64, 16, 16),  # FP16 scale and bias
    "nf4": _grouped(4, 64, 32),  # FP32 absmax per 64
    "mxfp4": Layout(32, 17),  # E8M0 scale per 32
    "nvfp4": Layout(16, 9, tensor_bytes=4),  # E4M3 scale per 16, FP32 per tensor
    "q4_0": Layout(32, 18),
    "q4_1": Layout(32, 20),
    "q5_0": Layout(32, 22),
    "q5_1": Layout(32, 24),
    "q8_0": Layout(32, 34),
    "q2_k": Layout(256, 84),
    "q3_k": Layout(256, 110),
    "q4_k": Layout(256, 144),
    "q5_k": Layout(256, 176),
    "q6_k": Layout(256, 210),
    "iq4_nl": Layout(32, 18),
    "iq4_xs": Layout(256, 136),
}

# Keys and values are quantised over the head, per token and head.
KV_LAYOUTS: dict[str, Layout] = {
    "fp32": Layout(1, 4),
    "bf16": Layout(1, 2),
    "fp16": Layout(1, 2),
    "fp8": Layout(1, 1),  # one scale per tensor, kept with the weights
    "int8": Layout(1, 1, row_bytes=2),  # a scale of 16 bits per token and head
    "int4": _grouped(4, 64, 16),  # FP16 scale per 64
    "int4-g32": _grouped(4, 32, 16),
    "int4-g64": _grouped(4, 64, 16),
    "int4-g64-asym": _grouped(4, 64, 16, 16),
    "q8_0": Layout(32, 34),
    "q4_0": Layout(32, 18),
}


def _known(kind: str, name: str, table: dict[str, Layout] | dict[str, int]) -> None:
    if name not in table:
        raise LabError(
            "There is no {kind} format {name}; known are {known}.", kind=kind, name=name, known=", ".join(table)
        )


@dataclass(frozen=True, slots=True)
class Formats:
    """What weights, KV cache and recurrent state are held in.

    weights: applied to the matrices of the layers; embedding, head, norms, router and vectors stay in `plain`.
    plain: None takes `weights` where that is unquantised, else bf16. embedding: None takes `plain`.
    conv: the conv state; None takes `plain`.

    Raises:
        LabError: a format that is not known, with those that are.
    """

    weights: str = "bf16"
    kv: str = "bf16"
    state: str = "fp32"
    plain: str | None = None
    embedding: str | None = None
    conv: str | None = None

    def __post_init__(self) -> None:
        _known("weight", self.weights, WEIGHT_LAYOUTS)
        _known("KV", self.kv, KV_LAYOUTS)
        _known("state", self.state, PLAIN_BYTES)
        _known("plain", self.plain or "bf16", PLAIN_BYTES)
        _known("embedding", self.embedding or "bf16", WEIGHT_LAYOUTS)
        _known("conv state", self.conv or "bf16", PLAIN_BYTES)

    @classmethod
    def own(cls, spec: Spec, *, weights: str | None = None, kv: str | None = None, state: str | None = None) -> Formats:
        """The checkpoint's own formats, with what is given instead."""
        stored = spec.quantization.format if spec.quantization else spec.dtype
        return cls(weights or stored, kv or spec.dtype, state or spec.state_dtype)

    @classmethod
    def dense(cls, dtype: str) -> Formats:
        """Everything in one unquantised dtype, the recurrent state in FP32, as this engine runs."""
        return cls(dtype, dtype, "fp32")

    @classmethod
    def engine(cls, plain: str, weights: str | None = None, kv: str | None = None) -> Formats:
        """As this engine runs: everything in `plain`, but matrices, embedding and head in `weights` where given, and
        the KV cache in `kv`.
        """
        return cls(weights or plain, kv or plain, "fp32", plain=plain, embedding=weights or plain)

    @property
    def plain_format(self) -> str:
        """What is never quantised is held in this."""
        return self.plain or (self.weights if self.weights in PLAIN_BYTES else "bf16")

    @property
    def own_weights(self) -> str | None:
        """The format of the matrices, where it is not the plain one."""
        return self.weights if self.weights != self.plain_format else None

    @property
    def multiplication(self) -> str:
        """What ceilings call multiplying by the matrices: "fp32", or "fp32 × int8" where they are held in int8."""
        return multiplication(self.plain_format, self.weights)

    @property
    def own_kv(self) -> str | None:
        """The format of the KV cache, where it is not the plain one."""
        return self.kv if self.kv != self.plain_format else None

    @property
    def state_bytes(self) -> int:
        """Bytes of one number of the recurrent state."""
        return PLAIN_BYTES[self.state]

    @property
    def conv_bytes(self) -> int:
        """Bytes of one number of the conv state."""
        return PLAIN_BYTES[self.conv or self.plain_format]

    def kv_bytes(self, heads: int, width: int) -> int:
        """Bytes of `heads` cached vectors of `width` numbers: the keys, or the values, of one token and layer."""
        return KV_LAYOUTS[self.kv].size(heads, width)

    def weight_bytes(self, weight: Weight, spec: Spec) -> int:
        """Bytes of all copies of a stored tensor.

        A checkpoint's own format covers the parts its config names; any other covers the matrices of the layers.
        """
        if weight.use == "vector" or weight.use == "hidden_norm":
            return weight.parameters * PLAIN_BYTES[self.plain_format]
        columns = weight.shape[-1]
        rows = weight.parameters // columns // weight.copies
        if weight.role in ("embedding", "head"):
            layout = WEIGHT_LAYOUTS[self.embedding or self.plain_format]
        else:
            layout = WEIGHT_LAYOUTS[self.weights if weight.role in self.quantised_roles(spec) else self.plain_format]
        return layout.size(rows, columns) * weight.copies

    def quantised_roles(self, spec: Spec) -> frozenset[Role]:
        """The parts of the model that `weights` applies to."""
        own = spec.quantization
        return own.roles if own and own.format == self.weights else MATRICES


BF16 = Formats()
