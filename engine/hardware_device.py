"""A device as hardware_specs/ describes it: `Device` and the `Peak` of each of its dtypes.

Rates are dense, in FLOP/s and bytes/s; memory is in bytes. A sparse rate may stand beside the dense
one for the reader's sake, with its ratio, and is never computed with. Knows nothing of files, nor of
which devices exist.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Kind = Literal["gpu", "cpu", "accelerator"]
Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
TORCH_NAMES: dict[str, Dtype] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def _whole(value: object) -> object:
    """Let 80e9 stand for 80_000_000_000: TOML reads the first as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Bytes = Annotated[int, BeforeValidator(_whole)]
Rate = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=600)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=60)]
# TOML has lists; what is cached for everyone may not be changed by anyone.
Cited = Annotated[tuple[Key, ...], Field(min_length=1, strict=False)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Peak(_Strict):
    """The dense rate of one dtype.

    accumulator: what products are summed in; language-model kernels use fp32 (int32 for int8).
    derived: how the figure was computed, where it was not read. measured_flops_per_s: the best
    matrix product published for this device. source, measured_source: keys of the device's `sources`.
    """

    dense_flops_per_s: Rate
    accumulator: Literal["fp32", "int32"]
    source: Cited
    derived: Text | None = None
    sparse_flops_per_s: Rate | None = None
    sparse_ratio: Annotated[float, Field(gt=1, le=8)] | None = None
    measured_flops_per_s: Rate | None = None
    measured_source: Key | None = None


class Device(_Strict):
    """A device as its maker describes it.

    memory_bytes: as marketed. usable_memory_bytes: what the driver reports, where seen.
    memory_is_largest_option: sold with less too. bandwidth_bytes_per_s: of its main memory.
    cache_bytes: its last-level cache. cores: as its software counts them: multiprocessors or compute
    units of a GPU, CPU cores of an Apple chip, cores of ONE socket of a server CPU. name_patterns:
    regular expressions for the whole of a name the device reports. source: what the figures outside
    `peaks` rest on. confidence: A, the maker and another source agree; A-, the same with a small
    disagreement or a derived figure; B, one good source; C, weak or contradictory.
    """

    id: Key
    vendor: Key
    name: Text
    kind: Kind
    architecture: Text
    bandwidth_bytes_per_s: Rate
    source: Cited
    sources: dict[Key, Text]
    confidence: Literal["A", "A-", "B", "C"]
    retrieved: Annotated[str, Field(pattern=r"^20\d\d-\d\d(-\d\d)?$")]
    memory_bytes: Bytes | None = None
    usable_memory_bytes: Bytes | None = None
    memory_is_largest_option: bool = False
    memory_type: Text | None = None
    bandwidth_derived: Text | None = None
    cache_bytes: Bytes | None = None
    cache_level: Text | None = None
    compute_capability: Text | None = None
    cores: Annotated[int, Field(ge=1, le=100_000)] | None = None
    power_w: Annotated[int, Field(ge=1, le=20_000)] | None = None
    year: Annotated[int, Field(ge=2000, le=2100)] | None = None
    name_patterns: Texts = ()
    remarks: Texts = ()
    peaks: dict[Dtype, Peak] = {}

    def __hash__(self) -> int:
        """Devices are keys of caches; two of one id and bandwidth that differ elsewhere are told apart by `==`."""
        return hash((self.id, self.bandwidth_bytes_per_s))

    def peak_flops_per_s(self, dtype: str) -> float | None:
        """Dense FLOP/s of `dtype` ("bf16", or torch's "bfloat16"); None where no figure can be stood by."""
        peak = self.peaks.get(TORCH_NAMES.get(dtype, dtype))  # type: ignore[call-overload]
        return peak.dense_flops_per_s if peak else None

    def ridge_flop_per_byte(self, dtype: str) -> float | None:
        """The ridge point, peak over bandwidth: below this intensity memory is the limit (Williams et al., 2009)."""
        peak = self.peak_flops_per_s(dtype)
        return None if peak is None else peak / self.bandwidth_bytes_per_s

    @property
    def ridges(self) -> dict[str, float]:
        """The ridge point in FLOP/byte of every dtype listed."""
        return {dtype: peak.dense_flops_per_s / self.bandwidth_bytes_per_s for dtype, peak in self.peaks.items()}
