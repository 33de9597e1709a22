"""A checkpoint's tensors for torch: checked against the Spec before any is read, then read one at a time.

Real ones are views of the mapped file where it already has the dtype asked for; random ones are made when asked for.
Whoever loads a model copies what it keeps, so the peak is the model and a few tensors. The only module that turns
a Source into numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from torch import Tensor

from engine.checkpoint import RANDOM_RECIPE, Source
from engine.errors import LabError
from engine.spec import Spec
from engine.weight_files import Stored, inspect

_DTYPES = ("F32", "BF16", "F16")
_KEPT = 3
"""Tensors remembered, so that a loader may look at q, k and v, or gate and up, and then take them."""


def tensors(source: Source, dtype: torch.dtype | None = None) -> Mapping[str, Tensor]:
    """The tensors of the text model by their Hugging Face names, on the CPU.

    Args:
        source: what engine.checkpoint made of a model's name.
        dtype: what the tensors are given in; None leaves each as it is stored (random ones: fp32).

    Returns:
        A lazy mapping with exactly the names and shapes of `source.spec.tensors()`. Copy what is to be kept: a tensor
        may be a view of the file.

    Raises:
        LabError: a damaged file, or names, shapes or formats that are not what config.json announces.
    """
    if source.is_random:
        return _Lazy(source.spec, _Random(source.spec, dtype or torch.float32))
    stored = inspect(source.weight_files())
    check(source.spec, stored)
    return _Lazy(source.spec, _Files(stored, dtype))


def check(spec: Spec, stored: Mapping[str, Stored]) -> None:
    """Whether the files hold exactly the model that config.json describes.

    Not asked for and ignored: the second copy of a tied head, and the rotary frequencies that old files carry.

    Raises:
        LabError: what is missing, has no place, or has another shape or a format this engine does not read.
    """
    wanted = spec.tensors()
    missing = [name for name in wanted if name not in stored]
    if missing:
        raise LabError(
            "The weight files have no tensor {name} ({count} in all are missing): "
            "they are incomplete, or config.json belongs to another model.",
            name=missing[0],
            count=len(missing),
        )
    extra = [name for name in stored if name not in wanted and not _ignored(name, spec)]
    if extra:
        raise LabError(
            "The weight files have a tensor {name} ({count} such in all) that config.json leaves no place for.",
            name=extra[0],
            count=len(extra),
        )
    for name, shape in wanted.items():
        if stored[name].shape != shape:
            raise LabError(
                "Tensor {name} has the shape {found} in {file} and {wanted} by config.json: "
                "one of the two belongs to another model.",
                name=name,
                found=_shape(stored[name].shape),
                wanted=_shape(shape),
                file=stored[name].file.name,
            )
        if stored[name].dtype not in _DTYPES:
            raise LabError(
                "Tensor {name} is stored as {dtype}; this engine reads {known}.",
                name=name,
                dtype=stored[name].dtype,
                known=", ".join(_DTYPES),
            )


def _ignored(name: str, spec: Spec) -> bool:
    return (spec.tied and name == "lm_head.weight") or name.endswith(".rotary_emb.inv_freq")


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


class _Files:
    """Reads tensors out of mapped files, opened anew for each: pages that were read count as this process's memory
    for as long as their mapping lives, and a whole file's would be a second model.
    """

    def __init__(self, stored: Mapping[str, Stored], dtype: torch.dtype | None) -> None:
        self._stored = stored
        self._dtype = dtype

    def __call__(self, name: str) -> Tensor:
        with safe_open(self._stored[name].file, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor if self._dtype is None else tensor.to(self._dtype)


class _Random:
    """Makes tensors from their names: the same in every process, on every machine, in any order.

    A matrix is uniform with variance 1 / fan-in, which keeps a normalised input at its scale (LeCun et al., "Efficient
    BackProp", 1998), so logits have a standard deviation near 1. Norms are one, biases zero.
    """

    def __init__(self, spec: Spec, dtype: torch.dtype) -> None:
        self._shapes = spec.tensors()
        self._dtype = dtype

    def __call__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        if name.endswith(".bias"):
            return torch.zeros(shape, dtype=self._dtype)
        if len(shape) == 1:
            return torch.ones(shape, dtype=self._dtype)
        seed = hashlib.sha256(f"{RANDOM_RECIPE} {name}".encode()).digest()
        values = _uniform(math.prod(shape), seed, bound=math.sqrt(3 / shape[-1]))
        return torch.from_numpy(values).view(shape).to(self._dtype)


def _uniform(count: int, seed: bytes, bound: float) -> npt.NDArray[np.float32]:
    """`count` numbers, evenly from -bound to bound, in steps of 2^-23 of it.

    From the generator's raw bits: numpy keeps those for good (NEP 19), and neither its distributions nor torch's.
    """
    bits = np.random.PCG64(int.from_bytes(seed[:16], "little")).random_raw((count + 1) // 2)
    values: npt.NDArray[np.float32] = (bits.astype("<u8").view("<u4")[:count] >> 8).astype(np.float32)
    values *= bound / 2**23
    values -= bound
    return values


class _Lazy(Mapping[str, Tensor]):
    """The names of a Spec over something that yields one tensor at a time."""

    def __init__(self, spec: Spec, read: _Files | _Random) -> None:
        self._names = spec.tensors().keys()
        self._read = read
        self._kept: OrderedDict[str, Tensor] = OrderedDict()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._kept:
            while len(self._kept) >= _KEPT:
                self._kept.popitem(last=False)
            self._kept[name] = self._read(name)
        return self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
