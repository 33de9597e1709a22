"""A model that can be loaded: where its files are, what its config says, and which bytes it is. Reads no weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine import spec, weight_files
from engine.errors import N_, Sentence

RANDOM_RECIPE = 2
"""Raised when engine.weights fills random tensors differently: the same name must never mean other numbers."""

NOTES = {
    "random": N_("The weights are random: times and bytes are real, the text means nothing."),
    "compressed": N_(
        "The weights are stored as {format} and were turned into {format_here} on loading: "
        "the steps read the latter, and so do their bytes."
    ),
    "code": N_(
        "The checkpoint asks for code of its own ({names}); it was not run: the engine has its own for this family."
    ),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be loaded. `folder` is None where the weights are random; `config` is its config.json.

    revision: the commit it is on the Hub, where it comes from there.
    """

    id: str
    folder: Path | None
    config: dict[str, Any]
    spec: spec.Spec
    revision: str | None = None

    @property
    def is_random(self) -> bool:
        """Whether the weights are made up, so that the text means nothing."""
        return self.folder is None

    @property
    def has_files(self) -> bool:
        """Whether all it needs is on this machine: the lab's own have a folder before they are fetched."""
        return self.folder is None or (self.folder / "config.json").is_file()

    @property
    def weights(self) -> Literal["real", "random"]:
        """The same as a record says it."""
        return "random" if self.folder is None else "real"

    @property
    def stored_format(self) -> str | None:
        """What its files hold the matrices in: "fp32", "bf16", "fp16", "fp8" or "mxfp4"; None without files."""
        if self.is_random:
            return None
        return self.spec.quantization.format if self.spec.quantization else self.spec.dtype

    def notes(self, format_here: str = "fp32") -> list[Sentence]:
        """What a reader of its figures or its text has to know. `format_here`: what the engine holds it in."""
        said = []
        if self.is_random:
            said.append(Sentence(template=NOTES["random"]))
        elif self.spec.quantization is not None:
            formats: dict[str, Any] = {"format": self.spec.quantization.format.upper(), "format_here": format_here}
            said.append(Sentence(template=NOTES["compressed"], params=formats))
        code = self.config.get("auto_map")
        if code and not self.is_random:
            names = ", ".join(sorted(map(str, code))) if isinstance(code, dict | list) else str(code)
            said.append(Sentence(template=NOTES["code"], params={"names": names[:200]}))
        return said

    def weight_files(self) -> list[Path]:
        """The files that hold the weights, in order; none for random weights.

        Raises:
            LabError: the folder has none that can be used, or an index that points elsewhere.
        """
        return [] if self.folder is None else weight_files.find(self.folder)

    def weights_hash(self) -> str:
        """SHA-256 over the weight files, one after the other (`cat *.safetensors | sha256sum`).

        Random weights have no files; theirs is over what they are made from. Kept by size and time of change.
        """
        if self.folder is None:
            recipe = {"recipe": RANDOM_RECIPE, "tensors": self.spec.tensors()}
            return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()
        return weight_files.combined_sha256(self.weight_files())
