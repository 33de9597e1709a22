"""One checkpoint's files through the `huggingface_hub` library: with progress, with room made sure of, and with one
sentence for whatever goes wrong on the way.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from engine.errors import N_, LabError, Sentence
from engine.wheels import Progress


class UnreachableError(LabError):
    """The Hub cannot be reached, or must not be; what is in the cache may still do."""


def endpoint() -> str:
    """Where the Hub is: HF_ENDPOINT, or the library's default."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


class Download:
    """The files of one repository at one revision.

    Args:
        repo: owner/model.
        revision: a commit, or the name of one.
        progress: told the bytes that have arrived of those expected.
    """

    def __init__(self, repo: str, revision: str, progress: Progress | None) -> None:
        self._repo = repo
        self._revision = revision
        self._progress = progress
        self._total = 0
        self._done = 0

    def expect(self, sizes: Mapping[str, int]) -> None:
        """What will be asked for, so that progress is that of the whole.

        Raises:
            LabError: there is not room enough for what is missing.
        """
        from huggingface_hub import constants, try_to_load_from_cache

        self._total = sum(sizes.values())
        missing = sum(
            size
            for name, size in sizes.items()
            if not isinstance(try_to_load_from_cache(self._repo, name, revision=self._revision), str)
        )
        folder = Path(constants.HF_HUB_CACHE)
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if missing > free:
            raise LabError(
                "{model} needs {needed} MB more in {folder} and {free} MB are free: free some, "
                "or set HF_HOME to a folder on a larger disk.",
                model=self._repo,
                needed=f"{missing / 1e6:,.0f}",
                free=f"{free / 1e6:,.0f}",
                folder=str(folder),
            )

    def file(self, name: str, size: int) -> Path:
        """Bring one file, unless it is there; the library's errors pass through."""
        from huggingface_hub import hf_hub_download

        before = self._done
        arrived = hf_hub_download(
            self._repo, name, revision=self._revision, endpoint=endpoint(), tqdm_class=self._bar_class()
        )
        self._done = before + (size if self._total else 0)
        self._tell(0)
        return Path(str(arrived))

    def _tell(self, more: int) -> None:
        self._done += more
        if self._progress is None or not self._total:
            return
        self._progress(
            Sentence(
                template=N_("Downloading {model}: {done} of {total} MB have arrived."),
                params={
                    "model": self._repo,
                    "done": f"{self._done / 1e6:,.0f}",
                    "total": f"{self._total / 1e6:,.0f}",
                },
            ),
            min(1.0, self._done / self._total),
        )

    def _bar_class(self) -> type[tqdm[Any]]:
        """The library's bar, which draws nothing and passes on what has arrived."""
        tell = self._tell

        class Bar(tqdm):  # type: ignore[type-arg]  # generic in its stubs alone
            def __init__(self, *args: Any, **options: Any) -> None:
                options.pop("name", None)
                super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})

            def update(self, n: float | None = 1) -> bool | None:
                tell(int(n or 0))
                return super().update(n)

            def update_transfer(self, n: float = 1) -> None:
                """Bytes on the wire, which the library counts beside those written; only the latter are told."""

            def set_transfer_postfix_str(self, *args: Any, **options: Any) -> None:
                """How fast they come; nothing is drawn."""

        return Bar


OFFLINE = N_(
    "{model} is not in the Hub's cache on this machine, and HF_HUB_OFFLINE forbids to fetch it: "
    "unset that once, or name a folder that holds the model."
)
UNREACHABLE = N_(
    "{model} is not on this machine and {endpoint} cannot be reached: check the network, "
    "set HF_ENDPOINT to a mirror, or name a folder that holds the model."
)
# By the names of the library's exceptions, the narrower ones first.
REFUSALS = {
    "GatedRepoError": N_(
        "{model} is given only to those who accepted its terms: do that on its page at {endpoint}, "
        "log in here with `hf auth login`, and try again."
    ),
    "RepositoryNotFoundError": N_(
        "{endpoint} has no public model {model}: check the name, or log in with `hf auth login` if it is private."
    ),
    "RevisionNotFoundError": N_("{model} has no revision {revision} at {endpoint}."),
    "RemoteEntryNotFoundError": N_(
        "{endpoint} lists a file of {model} that it does not have ({file}): try again later, or use another mirror."
    ),
    "HfHubHTTPError": N_(
        "{endpoint} answered {status} when asked for {model}: try again later, or set HF_ENDPOINT to a mirror."
    ),
    "FileMetadataError": N_(
        "{endpoint} does not answer as the Hugging Face Hub does: set HF_ENDPOINT to one that does, or unset it."
    ),
}


@contextmanager
def said_plainly(repo: str, revision: str) -> Iterator[None]:
    """Turn what the library raises into a sentence with a way out.

    Raises:
        UnreachableError: no network, or offline by the reader's own setting.
        LabError: everything else that the library, the Hub or the file system refuses.
    """
    import httpx2  # what the library speaks with, and whose exceptions it lets through

    try:
        yield
    except (OSError, httpx2.HTTPError) as error:
        raise _meaning(repo, revision, error) from error


def _meaning(repo: str, revision: str, error: Exception) -> LabError:
    import httpx2
    from huggingface_hub import errors

    # "Not in the cache either" is what the library adds to any trouble; the trouble itself is its cause.
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, errors.OfflineModeIsEnabled):
        return UnreachableError(OFFLINE, model=repo)
    answer = error.response if isinstance(error, errors.HfHubHTTPError) else None
    facts: dict[str, Any] = {
        "model": repo,
        "revision": revision,
        "endpoint": endpoint(),
        "status": answer.status_code if answer is not None else 0,
        "file": str(answer.url).rsplit("/", 1)[-1] if answer is not None else "",
    }
    for name, template in REFUSALS.items():
        if isinstance(error, getattr(errors, name)):
            return LabError(template, **{key: value for key, value in facts.items() if f"{{{key}}}" in template})
    if isinstance(error, httpx2.HTTPError | errors.LocalEntryNotFoundError | ConnectionError):
        return UnreachableError(UNREACHABLE, model=repo, endpoint=endpoint())
    return _of_the_disk(repo, error if isinstance(error, OSError) else OSError(str(error)))


def _of_the_disk(repo: str, error: OSError) -> LabError:
    from huggingface_hub import constants

    if "Consistency check failed" in str(error):
        return LabError(
            "A file of {model} arrived with another length than announced: fetch it again, or use another mirror.",
            model=repo,
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return LabError(
            "The disk that holds {folder} is full: free some space, or set HF_HOME to a folder on a larger disk.",
            folder=constants.HF_HUB_CACHE,
        )
    return LabError(
        "The Hub's cache in {folder} cannot be used ({reason}): give the lab the right to write there, "
        "or set HF_HOME to another folder.",
        folder=constants.HF_HUB_CACHE,
        reason=(error.strerror or type(error).__name__).lower(),
    )
