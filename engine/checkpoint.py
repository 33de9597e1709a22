"""Where a model comes from: the lab's own, a folder in Hugging Face layout, or random values at true shape.

Answers what can be chosen, what an id stands for and which bytes it is, from names, sizes and configs alone.
Reads no weights (engine.weights does), imports no torch, and executes nothing from a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from engine import catalogue, fetch, fetched, settings, spec, weight_files
from engine.errors import LabError
from engine.spec.cut import first_layers
from engine.wheels import Progress

RANDOM_RECIPE = 2
"""Raised when engine.weights fills random tensors differently: the same name must never mean other numbers."""

_RANDOM = re.compile(r"random:(?P<model>[^@]+)(?:@layers=(?P<layers>\d{1,4}))?")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One line of the list of models. `fetched`: nothing needs to be brought before it can run."""

    id: str
    label: str
    weights: Literal["real", "random"]
    fetched: bool
    parameters: int


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be loaded. `folder` is None where the weights are random; `config` is its config.json."""

    id: str
    folder: Path | None
    config: dict[str, Any]
    spec: spec.Spec

    @property
    def is_random(self) -> bool:
        """Whether the weights are made up, so that the text means nothing."""
        return self.folder is None

    @property
    def weights(self) -> Literal["real", "random"]:
        """The same as a record says it."""
        return "random" if self.folder is None else "real"

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


def available() -> list[ModelChoice]:
    """What can run here: the lab's own models, then the readable subfolders of ROOFLINE_LAB_MODELS."""
    choices = []
    for model_id in catalogue.OWN:
        entry, is_random = catalogue.entries()[model_id], model_id not in fetched.ITEMS
        choices.append(
            ModelChoice(
                id=model_id,
                label=str(entry.get("label", model_id)),
                weights="random" if is_random else "real",
                fetched=is_random or _is_fetched(model_id),
                parameters=catalogue.load(model_id).parameters.trunk,
            )
        )
    for name, folder in _listed().items():
        read = _readable(folder)
        if read is not None:
            choices.append(ModelChoice(name, name, "real", fetched=True, parameters=read.parameters.trunk))
    return choices


def resolve(model: str | Path, *, allow_paths: bool) -> Source:
    """What an id stands for, without fetching anything.

    Args:
        model: one of the lab's own ids, the name of a subfolder of ROOFLINE_LAB_MODELS, or, where `allow_paths`,
            a folder in Hugging Face layout or `random:<catalogue id>[@layers=N]`.
        allow_paths: False for what a web visitor sends: ids are then looked up in a listing and never joined to a path.

    Raises:
        LabError: unknown (with what can be chosen), or a folder whose config.json cannot be used.
    """
    name = str(model)
    if name in catalogue.OWN:
        return _own(name)
    listed = _listed()
    if name in listed:
        return _from_folder(name, listed[name])
    if allow_paths:
        if made_up := _RANDOM.fullmatch(name):
            return _random(made_up["model"], made_up["layers"])
        path = Path(name).expanduser()
        if name and _is_folder(path):
            return _from_folder(path.resolve().name, path)
    raise _unknown(name, allow_paths=allow_paths)


def ensure(
    model: str | Path, progress: Progress | None = None, *, allow_paths: bool = True, thorough: bool = False
) -> Source:
    """As `resolve`, and bring what is missing or damaged first. `thorough` reads every byte to find damage.

    Raises:
        LabError: as `resolve` and `engine.fetch.fetch`.
    """
    source = resolve(model, allow_paths=allow_paths)
    if source.id in fetched.ITEMS and source.folder == fetched.ITEMS[source.id][0].path():
        try:
            fetch.fetch(source.id, progress, thorough=thorough)
        except LabError:
            # The model runs without the vocabulary that is shown beside it.
            if fetched.verify(fetched.ITEMS[source.id][0], thorough=False) != "ready":
                raise
        return resolve(model, allow_paths=allow_paths)
    return source


def _own(model_id: str) -> Source:
    """One of the lab's models; its folder's own config once it is there, the catalogue's before."""
    if model_id not in fetched.ITEMS:
        return Source(model_id, None, catalogue.config(model_id), catalogue.load(model_id))
    folder = fetched.ITEMS[model_id][0].path()
    if _is_fetched(model_id):
        return _from_folder(model_id, folder)
    return Source(model_id, folder, catalogue.config(model_id), catalogue.load(model_id))


def _random(model_id: str, layers: str | None) -> Source:
    """Random values at the shapes of a catalogue entry, or of its first layers."""
    config = catalogue.config(model_id)
    if layers is not None:
        count = int(layers)
        if not 1 <= count <= catalogue.load(model_id).num_layers:
            raise LabError(
                "{model} has {most} layers; ask for 1 to {most} of them.",
                model=model_id,
                most=catalogue.load(model_id).num_layers,
            )
        config = first_layers(config, count)
    name = f"random:{model_id}" + (f"@layers={int(layers)}" if layers is not None else "")
    return Source(name, None, config, spec.read(config))


def _from_folder(model_id: str, folder: Path) -> Source:
    read = spec.from_folder(folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Source(model_id, folder, config, read)


def _is_fetched(model_id: str) -> bool:
    return fetched.state(fetched.ITEMS[model_id][0]) == "ready"


def _unknown(name: str, *, allow_paths: bool) -> LabError:
    choices = ", ".join([*catalogue.OWN, *_listed()])
    if name in catalogue.ids():
        return LabError(
            "{model} is known for predictions alone, its weights are not here; models that can run are {choices}.",
            model=name,
            choices=choices,
        )
    if allow_paths:
        return LabError(
            "There is no model {model}; choose {choices}, or name a folder with a config.json and safetensors files.",
            model=name[:200],
            choices=choices,
        )
    return LabError("There is no model {model}; choose {choices}.", model=name[:200], choices=choices)


# --- the models folder ------------------------------------------------------------------------------


def _listed() -> dict[str, Path]:
    """Subfolders of ROOFLINE_LAB_MODELS with a config.json, by name; the lab's own names stay its own."""
    return {path.name: path for path in sorted(_subfolders()) if path.name not in catalogue.OWN}


def _subfolders() -> Iterator[Path]:
    parent = settings.models_folder()
    if parent is None or not _is_folder(parent):
        return
    for path in parent.iterdir():
        if (path / "config.json").is_file():
            yield path


def _readable(folder: Path) -> spec.Spec | None:
    """The Spec of a listed folder, or None where its config is of no use here."""
    try:
        facts = (folder / "config.json").stat()
        return _spec_of(folder, facts.st_mtime_ns, facts.st_size)
    except (OSError, LabError):
        return None


@lru_cache(maxsize=64)
def _spec_of(folder: Path, mtime_ns: int, size: int) -> spec.Spec:
    return spec.from_folder(folder)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name no file system takes: too long, or with a NUL
        return False
