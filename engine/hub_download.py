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

from engine.errors import LabError, Sentence
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
                template="Downloading {model}: {done} of {total} MB have arrived.",
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

        class Bar(tqdm[Any]):
            def __init__(self, *args: Any, **options: Any) -> None:
                options.pop("name", None)
                super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})

            def update(self, n: float | None = 1) -> bool | None:
                tell(int(n or 0))
                return super().update(n)

        return Bar


@contextmanager
def said_plainly(repo: str, revision: str) -> Iterator[None]:
    """Turn what the library raises into a sentence with a way out.

    Raises:
        UnreachableError: no network, or offline by the reader's own setting.
        LabError: everything else that the library, the Hub or the file system refuses.
    """
    import httpx2  # what the library speaks with, and whose exceptions it lets through
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise UnreachableError(
            "{model} is not in the Hub's cache on this machine, and HF_HUB_OFFLINE forbids to fetch it: "
            "unset that once, or name a folder that holds the model.",
            model=repo,
        ) from error
    except errors.GatedRepoError as error:
        raise LabError(
            "{model} is given only to those who accepted its terms: do that on its page at {endpoint}, "
            "log in here with `hf auth login`, and try again.",
            model=repo,
            endpoint=endpoint(),
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise LabError(
            "{endpoint} has no public model {model}: check the name, or log in with `hf auth login` if it is private.",
            model=repo,
            endpoint=endpoint(),
        ) from error
    except errors.RevisionNotFoundError as error:
        raise LabError(
            "{model} has no revision {revision} at {endpoint}.", model=repo, revision=revision, endpoint=endpoint()
        ) from error
    except errors.RemoteEntryNotFoundError as error:
        raise LabError(
            "{endpoint} lists a file of {model} that it does not have ({file}): try again later, "
            "or use another mirror.",
            endpoint=endpoint(),
            model=repo,
            file=str(error.response.url).rsplit("/", 1)[-1],
        ) from error
    except errors.HfHubHTTPError as error:
        raise LabError(
            "{endpoint} answered {status} when asked for {model}: try again later, or set HF_ENDPOINT to a mirror.",
            endpoint=endpoint(),
            status=error.response.status_code,
            model=repo,
        ) from error
    except errors.FileMetadataError as error:
        raise LabError(
            "{endpoint} does not answer as the Hugging Face Hub does: set HF_ENDPOINT to one that does, or unset it.",
            endpoint=endpoint(),
        ) from error
    except (httpx2.HTTPError, errors.LocalEntryNotFoundError, ConnectionError) as error:
        raise _unreachable(repo) from error
    except OSError as error:
        raise _of_the_disk(repo, error) from error


def _unreachable(repo: str) -> UnreachableError:
    return UnreachableError(
        "{model} is not on this machine and {endpoint} cannot be reached: check the network, "
        "set HF_ENDPOINT to a mirror, or name a folder that holds the model.",
        model=repo,
        endpoint=endpoint(),
    )


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
