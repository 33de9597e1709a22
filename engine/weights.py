"""A checkpoint's tensors for torch: checked against the Spec before any is read, then read one at a time.

Real ones are views of the mapped file where it already has the dtype asked for, or turned into numbers where they are
compressed; random ones are made when asked for. Whoever loads a model copies what it keeps, so the peak is the model
and a few tensors. The only module that turns a Source into numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from engine.errors import LabError
from engine.random_weights import RandomTensors
from engine.source import Source
from engine.stored import Meant, meant
from engine.weight_files import Stored, inspect

_KEPT = 3
"""Tensors remembered, so that a loader may look at q, k and v, or gate and up, and then take them."""
_OPENINGS = 128
"""How often the files are opened while all of them are read: one opening then maps a hundredth of them."""


def tensors(source: Source, dtype: torch.dtype | None = None) -> Mapping[str, Tensor]:
    """The tensors of the text model, on the CPU: real ones by the names of their files, random ones by the engine's.

    Args:
        source: what engine.checkpoint made of a model's name.
        dtype: what the tensors are given in; None leaves each as it is stored (random ones: fp32, FP8: fp32,
            MXFP4: bf16).

    Returns:
        A lazy mapping that is known to hold all that the Spec asks for, in its shapes. Copy what is to be kept: a
        tensor may be a view of the file, or of numbers that others share.

    Raises:
        LabError: a damaged file, or names, shapes or formats that are not what config.json announces.
    """
    # Not at the top: it knows the names of every family, and the package that holds those loads through this module.
    from engine import fitting

    if source.is_random:
        shapes = fitting.wanted_shapes(source.spec)
        return RandomTensors(shapes, dtype or torch.float32, zero_centred=source.spec.recipe.zero_centred)
    stored = inspect(source.weight_files())
    found = meant(stored, source.config)
    announced = source.spec.quantization
    if announced is not None and all(len(tensor.parts) == 1 for tensor in found.values()):
        raise LabError(
            "The config says that the weights are stored as {format}, but no file holds a tensor in that format; "
            "remove quantization_config.",
            format=announced.format,
        )
    fitting.check(
        source.spec,
        {name: tensor.shape for name, tensor in found.items()},
        {name: tensor.file for name, tensor in found.items()},
    )
    read = {name: tensor for name, tensor in found.items() if not fitting.ignored(name, source.spec)}
    return _Files(stored, read, dtype)


class _Files(Mapping[str, Tensor]):
    """Reads tensors out of mapped files, opened anew again and again: pages that were read count as this process's
    memory for as long as their mapping lives, and a whole file's would be a second model. (Opened anew for each
    tensor, a header of ten thousand experts would be read ten thousand times.)
    """

    def __init__(self, stored: Mapping[str, Stored], found: Mapping[str, Meant], dtype: torch.dtype | None) -> None:
        self._stored = stored
        self._found = found
        self._dtype = dtype
        self._kept: OrderedDict[str, Tensor] = OrderedDict()
        self._open: dict[Path, safe_open] = {}
        self._read_bytes = 0
        self._most_bytes = sum(file.stat().st_size for file in {part.file for part in stored.values()}) // _OPENINGS

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._kept:
            wanted = self._found[name]
            while len(self._kept) >= _KEPT:
                self._kept.popitem(last=False)
            tensor = wanted.decode([self._read(part) for part in wanted.parts])
            self._kept[name] = tensor if self._dtype is None else tensor.to(self._dtype)
        return self._kept[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, from the header alone."""
        return self._found[name].shape

    def rows(self, name: str, first: int, end: int) -> Tensor:
        """Some rows of a matrix; of a compressed one all are made into numbers, and kept for the next call."""
        if self._found[name].parts != (name,):
            return self[name][first:end]
        found: Tensor = self._file(name).get_slice(name)[first:end]  # type: ignore[no-untyped-call]
        self._read_bytes += found.nbytes
        return found if self._dtype is None else found.to(self._dtype)

    def _read(self, part: str) -> Tensor:
        tensor: Tensor = self._file(part).get_tensor(part)  # type: ignore[no-untyped-call]
        self._read_bytes += tensor.nbytes
        return tensor

    def _file(self, part: str) -> safe_open:
        if self._read_bytes > self._most_bytes:
            self._open.clear()
            self._read_bytes = 0
        file = self._stored[part].file
        if file not in self._open:
            self._open[file] = safe_open(file, framework="pt")
        return self._open[file]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
