"""Where a model comes from: the lab's own, a folder in Hugging Face layout, the Hub, or random values at true shape.

Answers what can be chosen and what an id stands for, from names, sizes and configs alone.
Reads no weights (engine.weights does), imports no torch, and executes nothing from a checkpoint.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from engine import catalogue, fetch, fetched, hub, models_folder, random_shapes, spec, weight_files
from engine.errors import LabError
from engine.hub_download import UnreachableError
from engine.source import Source
from engine.wheels import Progress

TEMPLATE_BYTES = 4096
"""More than any chat template adds to a prompt."""


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
    for name, folder in models_folder.listed().items():
        read = models_folder.readable(folder)
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
    listed = models_folder.listed()
    if name in listed:
        return _from_folder(name, listed[name])
    if name in random_shapes.OFFERED or (allow_paths and name.startswith(random_shapes.PREFIX)):
        return Source(random_shapes.canonical(name), None, *random_shapes.read(name))
    path = Path(name).expanduser() if allow_paths and name else None
    if path is not None and models_folder.is_folder(path):
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
    choices = ", ".join([*catalogue.OWN, *models_folder.listed(), *hub.ON_THE_WEB, *random_shapes.OFFERED])
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
