"""Files of the hub of models: from its cache, or downloaded where it can be reached, which is found out first."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from seqdg.base import UsageError, state_reason

PATIENCE = 5.0  # seconds to wait for the hub; its own clients try again for most of a minute
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


def find_file(repository: str, names: Sequence[str], needed_for: str) -> Path:
    """Return the first of these files that a repository of the hub has.

    needed_for: what reads it, for the error message.
    """
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError
    except ImportError:
        raise _refuse(repository, names, needed_for, "the package huggingface_hub is missing") from None
    for name in names:
        known = try_to_load_from_cache(repository, name)
        if isinstance(known, str):
            return Path(known)
    if why := _find_obstacle():
        raise _refuse(repository, names, needed_for, why)
    for name in names:
        try:
            return Path(hf_hub_download(repository, name))
        except RepositoryNotFoundError:
            raise _refuse(repository, names, needed_for, f"the hub has no {repository}, or not for everyone") from None
        except EntryNotFoundError:
            continue
        except (HfHubHTTPError, OSError) as error:
            raise _refuse(repository, names, needed_for, f"it cannot be downloaded ({state_reason(error)})") from None
    raise _refuse(repository, names, needed_for, f"{repository} has no such file")


@cache
def _find_obstacle() -> str:
    """Ask the hub once, and say why it cannot be reached; empty: it can."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE forbids it to be fetched"
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE):
            return ""
    except urllib.error.HTTPError:
        return ""  # it answers
    except (OSError, ValueError) as error:
        return f"the hub cannot be reached ({getattr(error, 'reason', error)})"


def _refuse(repository: str, names: Sequence[str], needed_for: str, why: str) -> UsageError:
    return UsageError(
        f"{needed_for} needs the file {' or '.join(names)} of {repository}, and {why}. Get the file elsewhere, and "
        "name it with --weights FILE."
    )
