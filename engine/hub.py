"""Checkpoints from the Hugging Face Hub: what of them is in the Hub's cache on this machine, and bringing the rest.

The cache, the resuming of broken downloads, HF_ENDPOINT (a mirror), HF_HUB_OFFLINE, HF_TOKEN and the proxies are the
`huggingface_hub` library's. Only config, tokenizer and safetensors files are asked for; nothing that could run code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from engine import spec, weight_files
from engine.errors import LabError
from engine.fetched import file_sha256
from engine.hub_download import Download, endpoint, said_plainly
from engine.wheels import Progress

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

ON_THE_WEB = ("Qwen/Qwen3-0.6B",)
"""What a visitor of the web app may have brought: it costs the host disk and network. The command line takes any."""

DEFAULT_REVISION = "main"
TIMEOUT_S = 10.0
CONFIG = "config.json"
_BESIDE = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_NAME = re.compile(r"(?P<repo>[\w][\w.-]{0,95}/[\w][\w.-]{0,95})(?:@(?P<revision>[\w][\w./-]{0,99}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Name:
    """`owner/model`, or `owner/model@revision` with a branch, a tag or a commit."""

    repo: str
    revision: str = DEFAULT_REVISION


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint in the cache. `commit` says which of its versions, for good."""

    folder: Path
    commit: str


def parse(name: str) -> Name | None:
    """What a name means on the Hub, or None where it cannot be one there."""
    found = _NAME.fullmatch(name)
    # The library's own rules for names, which it states as errors.
    if not found or ".." in name or "--" in found["repo"] or re.search(r"[.-](/|$)|\.(git|ipynb)$", found["repo"]):
        return None
    return Name(found["repo"], found["revision"] or DEFAULT_REVISION)


def cached(name: Name) -> Snapshot | None:
    """The checkpoint as it lies in the cache, if all of it does; asks nobody."""
    from huggingface_hub import constants

    store = Path(constants.HF_HUB_CACHE) / f"models--{name.repo.replace('/', '--')}"
    if not store.is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache  # takes a second to import; most have no such folder

    config = try_to_load_from_cache(name.repo, CONFIG, revision=name.revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        weight_files.find(folder)
    except LabError:
        return None
    return Snapshot(folder, folder.name)


def bring(name: Name, progress: Progress | None = None) -> Snapshot:
    """Bring what is missing of a checkpoint, or make sure that it is there and the newest of its revision.

    Args:
        name: which checkpoint.
        progress: told the bytes that have arrived, and their fraction of all; may raise to call it off.

    Raises:
        UnreachableError: the Hub cannot be reached, or must not be.
        LabError: no such checkpoint, one that this lab cannot read, no room, or files that are not the published ones.
    """
    with said_plainly(name.repo, name.revision):
        info = _ask(name)
        commit = str(info.sha)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
        if CONFIG not in sizes:
            raise LabError("{model} has no config.json on the Hub; it is no model that can be read.", model=name.repo)
        download = Download(name.repo, commit, progress)
        folder = download.file(CONFIG, sizes[CONFIG]).parent
        spec.from_folder(folder)  # a model the lab cannot read need not be downloaded
        weights = _weight_names(name.repo, sizes, download)
        wanted = [file for file in _BESIDE if file in sizes] + weights
        download.expect({file: sizes[file] for file in wanted})
        for file in wanted:
            _check_sum(download.file(file, sizes[file]), file, info)
        # Last of all: from now on the revision's name leads to this commit, and all of it is there.
        Download(name.repo, name.revision, None).file(CONFIG, sizes[CONFIG])
    return Snapshot(folder, commit)


def _ask(name: Name) -> ModelInfo:
    """The Hub's list of the checkpoint's files, at one commit."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint())
    return api.model_info(name.repo, revision=name.revision, files_metadata=True, timeout=TIMEOUT_S)


def _weight_names(repo: str, sizes: Mapping[str, int], download: Download) -> list[str]:
    """The safetensors files of the model: one, or those that its index names.

    Raises:
        LabError: there are none, or one is missing.
    """
    if weight_files.SINGLE in sizes:
        return [weight_files.SINGLE]
    if weight_files.INDEX not in sizes:
        raise LabError(
            "{model} has no safetensors files on the Hub, and pickled weights are never opened: "
            "choose a version of it that has them.",
            model=repo,
        )
    names = weight_files.shard_names(download.file(weight_files.INDEX, sizes[weight_files.INDEX]))
    missing = [name for name in names if name not in sizes]
    if missing:
        raise LabError(
            "{model} lacks the file {name} on the Hub, which its index names: it was published incompletely.",
            model=repo,
            name=missing[0],
        )
    return names


def _check_sum(path: Path, file: str, info: ModelInfo) -> None:
    """Compare a large file with the sum that the Hub publishes; a wrong one is removed, so that it comes again.

    Raises:
        LabError: another content.
    """
    published = next((each.lfs for each in info.siblings or [] if each.rfilename == file), None)
    if published is None or _sum(path, path.stat().st_size, path.stat().st_mtime_ns) == published.sha256:
        return
    blob = path.resolve()
    path.unlink()
    blob.unlink(missing_ok=True)
    raise LabError(
        "{file} of {model} did not arrive as it was published, and was removed: fetch it again.",
        file=file,
        model=str(info.id),
    )


@lru_cache(maxsize=64)
def _sum(path: Path, size: int, mtime_ns: int) -> str:
    return file_sha256(path)
