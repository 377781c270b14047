"""A hub name to a folder on this machine, and such a folder to the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tokagnostic.errors import SourceError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def is_hub_name(text: str) -> bool:
    """Whether a text has the form NAME or OWNER/NAME."""
    return _NAME.fullmatch(text) is not None


def fetch_folder(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Fetch files of a repository, or take them from the hub's local cache.

    Args:
        name: OWNER/NAME.
        files: their names; those that the repository does not have are left out.
        revision: a branch, tag or commit; by default the newest.

    Raises:
        SourceError: if there is no such repository, or the hub does not answer and the cache does not have it.
    """
    from huggingface_hub import snapshot_download

    with _errors_in_a_line(f"attachment {name} is no folder here, and cannot be fetched from the hub"):
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))


def push_folder(folder: Path, name: str, files: Sequence[str], *, private: bool) -> str:
    """Make a repository of a folder's files, or bring it up to date.

    Args:
        folder: where they are.
        name: OWNER/NAME.
        files: their names.
        private: whether a repository that has to be made is seen by its owner alone.

    Returns:
        The address of what was uploaded.

    Raises:
        SourceError: if the hub does not answer or does not let you write there.
    """
    from huggingface_hub import HfApi

    with _errors_in_a_line(f"attachment {name} cannot be pushed to the hub"):
        api = HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        message = "Upload a memory attachment"
        return str(
            api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=list(files), commit_message=message)
        )


@contextmanager
def _errors_in_a_line(what: str) -> Iterator[None]:
    """What the hub has to say goes into one line, and its own warnings about each retry do not hide it."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import logging as hub_logging

    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()
    try:
        yield
    except (OSError, HFValidationError) as error:
        raise SourceError(
            f"{what} ({type(error).__name__}: {' '.join(str(error).split())[:300]})",
            expected="a repository of the hub that can be reached, as OWNER/NAME",
            remedy="Check the name, the connection and that you are logged in, or name a folder of this machine",
        ) from error
    finally:
        hub_logging.set_verbosity(verbosity)
