"""Where a model comes from: the lab's own, a folder in Hugging Face layout, the Hub, or random values at true shape.

Answers what can be chosen, what an id stands for and which bytes it is, from names, sizes and configs alone.
Reads no weights (engine.weights does), imports no torch, and executes nothing from a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from engine import catalogue, fetch, fetched, hub, random_shapes, settings, spec, weight_files
from engine.errors import N_, LabError, Sentence
from engine.hub_download import UnreachableError
from engine.wheels import Progress

RANDOM_RECIPE = 2
"""Raised when engine.weights fills random tensors differently: the same name must never mean other numbers."""

TEMPLATE_BYTES = 4096
"""More than any chat template adds to a prompt."""

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
class ModelChoice:
    """One line of the list of models. `fetched`: nothing needs to be brought before it can run.

    spec: its dimensions, from which follows what it needs and what of it can be chosen.
    """

    id: str
    label: str
    weights: Literal["real", "random"]
    fetched: bool
    spec: spec.Spec

    @property
    def parameters(self) -> int:
        """Those of the text model."""
        return self.spec.parameters.trunk

    @property
    def has_latent_attention(self) -> bool:
        """Whether there is a form of it to choose."""
        return any(isinstance(layer.mixer, spec.LatentAttention) for layer in self.spec.layers)


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


def available() -> list[ModelChoice]:
    """What can run here: the lab's own, the readable subfolders of ROOFLINE_LAB_MODELS, and those that are offered."""
    choices = []
    for model_id in catalogue.OWN:
        entry, is_random = catalogue.entries()[model_id], model_id not in fetched.ITEMS
        choices.append(
            ModelChoice(
                id=model_id,
                label=str(entry.get("label", model_id)),
                weights="random" if is_random else "real",
                fetched=is_random or _is_fetched(model_id),
                spec=catalogue.load(model_id),
            )
        )
    for name, folder in _listed().items():
        read = _readable(folder)
        if read is not None:
            choices.append(ModelChoice(name, name, "real", fetched=True, spec=read))
    for name in hub.ON_THE_WEB:
        here = hub.cached(hub.Name(name)) is not None
        choices.append(ModelChoice(name, name, "real", here, catalogue.load(name)))
    return [*choices, *_offered()]


@cache
def _offered() -> tuple[ModelChoice, ...]:
    """The random ones: the same for ever, and asked for at every rerun of a page."""
    return tuple(
        ModelChoice(name, name, "random", fetched=True, spec=random_shapes.read(name)[1])
        for name in random_shapes.OFFERED
    )


def resolve(model: str | Path, *, allow_paths: bool) -> Source:
    """What an id stands for, without fetching anything.

    Args:
        model: one of the lab's own ids, the name of a subfolder of ROOFLINE_LAB_MODELS, or one that is offered; where
            `allow_paths`, also a folder in Hugging Face layout, a name on the Hub that is in its cache here, or
            `random:<catalogue id>[@layers=N]`.
        allow_paths: False for what a web visitor sends: ids are then looked up in a listing and never joined to a path.

    Raises:
        LabError: unknown (with what can be chosen), not here yet, or a folder whose config.json cannot be used.
    """
    found = _here(str(model), allow_paths=allow_paths)
    if found is None:
        raise _unknown(str(model), allow_paths=allow_paths)
    return found


def require(model: str, *, allow_paths: bool) -> Source | None:
    """Let pass what `ensure` could bring or find, and return it where it is here; asks no network.

    Raises:
        LabError: as `resolve`; or a folder of the reader's own whose weights are missing or damaged.
    """
    source = _here(model, allow_paths=allow_paths)
    if source is None and _on_the_hub(model, allow_paths=allow_paths) is None:
        raise _unknown(model, allow_paths=allow_paths)
    if source is not None and source.id not in fetched.ITEMS:  # the lab's own are mended by `ensure`
        weight_files.check(source.weight_files())
    return source


def check_prompt(source: Source, prompt: str, *, chat: bool) -> None:
    """Let pass a prompt that fits into the model's context, as far as that can be said before the engine has it.

    Raises:
        LabError: it does not; or the model has no tokenizer that can be read.
    """
    # A token is at least a byte: what is short in bytes fits without being tokenized, and without a tokenizer read.
    if len(prompt.encode()) + TEMPLATE_BYTES < source.spec.max_position or not source.has_files:
        return
    from engine import request, tokenizer  # brings the tokenizers library, which most requests need not wait for

    _rendered, ids = tokenizer.load(source).encode_prompt(prompt, chat=chat)
    request.check_fits(len(ids), source.spec.max_position)


def ensure(
    model: str | Path, progress: Progress | None = None, *, allow_paths: bool = True, thorough: bool = False
) -> Source:
    """As `resolve`, and bring what is missing or damaged first.

    Args:
        thorough: read every byte of the lab's own to find damage; ask the Hub for the newest version of what is there.

    Raises:
        LabError: as `resolve`, `engine.fetch.fetch` and `engine.hub.bring`.
    """
    source = _here(str(model), allow_paths=allow_paths)
    if source is None or (thorough and source.revision is not None):
        return _from_the_hub(str(model), source, progress, allow_paths=allow_paths)
    if source.id in fetched.ITEMS and source.folder == fetched.ITEMS[source.id][0].path():
        try:
            fetch.fetch(source.id, progress, thorough=thorough)
        except LabError:
            # The model runs without the vocabulary that is shown beside it.
            if fetched.verify(fetched.ITEMS[source.id][0], thorough=False) != "ready":
                raise
        return resolve(model, allow_paths=allow_paths)
    if random_shapes.speaks_qwen(source.spec) and source.is_random:
        with suppress(LabError):  # it runs without: its text means nothing, in bytes too
            fetch.fetch(fetched.QWEN_VOCABULARY.name, progress, thorough=False)
    return source


def _here(name: str, *, allow_paths: bool) -> Source | None:
    """What a name stands for, if that needs no network."""
    if name in catalogue.OWN:
        return _own(name)
    listed = _listed()
    if name in listed:
        return _from_folder(name, listed[name])
    if name in random_shapes.OFFERED or (allow_paths and name.startswith(random_shapes.PREFIX)):
        return Source(random_shapes.canonical(name), None, *random_shapes.read(name))
    path = Path(name).expanduser() if allow_paths and name else None
    if path is not None and _is_folder(path):
        return _from_folder(path.resolve().name, path)
    on_the_hub = _on_the_hub(name, allow_paths=allow_paths)
    snapshot = hub.cached(on_the_hub) if on_the_hub is not None else None
    return None if snapshot is None else _from_folder(name, snapshot.folder, revision=snapshot.commit)


def _on_the_hub(name: str, *, allow_paths: bool) -> hub.Name | None:
    """The name as the Hub knows it, where this reader may have it brought."""
    return hub.parse(name) if allow_paths or name in hub.ON_THE_WEB else None


def _from_the_hub(name: str, here: Source | None, progress: Progress | None, *, allow_paths: bool) -> Source:
    """Bring it; where the Hub is out of reach, what is here does."""
    wanted = _on_the_hub(name, allow_paths=allow_paths)
    if wanted is None:
        raise _unknown(name, allow_paths=allow_paths)
    try:
        snapshot = hub.bring(wanted, progress)
    except UnreachableError:
        if here is None:
            raise
        return here
    return _from_folder(name, snapshot.folder, revision=snapshot.commit)


def _own(model_id: str) -> Source:
    """One of the lab's models; its folder's own config once it is there, the catalogue's before."""
    if model_id not in fetched.ITEMS:
        return Source(model_id, None, catalogue.config(model_id), catalogue.load(model_id))
    folder = fetched.ITEMS[model_id][0].path()
    if _is_fetched(model_id):
        return _from_folder(model_id, folder)
    return Source(model_id, folder, catalogue.config(model_id), catalogue.load(model_id))


def _from_folder(model_id: str, folder: Path, *, revision: str | None = None) -> Source:
    read = spec.from_folder(folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Source(model_id, folder, config, read, revision)


def _is_fetched(model_id: str) -> bool:
    return fetched.state(fetched.ITEMS[model_id][0]) == "ready"


def _unknown(name: str, *, allow_paths: bool) -> LabError:
    choices = ", ".join([*catalogue.OWN, *_listed(), *hub.ON_THE_WEB, *random_shapes.OFFERED])
    if allow_paths and hub.parse(name) is not None:
        return LabError(
            "{model} is neither a folder nor in the Hub's cache on this machine: `python -m engine fetch {model}` "
            "brings it from the Hugging Face Hub.",
            model=name,
        )
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
