"""Fetch the data sets whose licence and a public address allow it: resumed where it stopped, and checked before use."""

from __future__ import annotations

import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from seqdg.base import UsageError, hash_file, replace_file, state_reason

PART, CHUNK, PATIENCE = ".part", 1 << 20, 30.0  # the ending of an unfinished file, bytes at once, seconds


@dataclass(frozen=True)
class Download:
    """A file of a data set.

    address: where it is.   file: its name below the root folder.   licence: which allows it.   sha256: of what is
    downloaded; empty where the fingerprint of the data themselves is known.   member: of the .zip that is downloaded.
    """

    address: str
    file: str
    licence: str
    sha256: str = ""
    member: str = ""


DOWNLOADS = {
    "rotated-mnist-full": Download(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz", "mnist.npz", "CC BY-SA 3.0",
        sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    ),
    "parkinsons": Download(
        "https://archive.ics.uci.edu/static/public/189/parkinsons+telemonitoring.zip", "parkinsons_updrs.csv",
        "CC BY 4.0", member="parkinsons_updrs.data",
    ),
}  # fmt: skip


def fetch_data(download: Download, root: Path, on_progress: Callable[[int, int], None]) -> Path:
    """Download a file to the root folder, or go on where an earlier call stopped.

    on_progress: called with the bytes that are there, and how many there will be (0: the server does not say).
    """
    target = root / download.file
    part = target.with_name(target.name + PART)
    root.mkdir(parents=True, exist_ok=True)
    by_hand = f"get the file elsewhere, and put it at {target}."
    try:
        _receive(download.address, part, on_progress)
    except (OSError, HTTPException, ValueError) as error:
        reason = state_reason(getattr(error, "reason", None) or error)
        raise UsageError(
            f"{download.address} cannot be downloaded ({reason}). Run the command again to go on, or {by_hand}"
        ) from None
    if download.sha256 and hash_file(part) != download.sha256:
        part.unlink()
        raise UsageError(f"What {download.address} sent is not the known file: its hash differs. Please {by_hand}")
    if not download.member:
        part.replace(target)
        return target
    try:
        with zipfile.ZipFile(part) as archive, archive.open(download.member) as source, replace_file(target) as file:
            while block := source.read(CHUNK):
                file.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        part.unlink()
        raise UsageError(f"What {download.address} sent has no {download.member} ({error}). Please {by_hand}") from None
    part.unlink()
    return target


def _receive(address: str, part: Path, on_progress: Callable[[int, int], None]) -> None:
    """Append to `part` what it lacks."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        reply = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if have and error.code == 416:  # there is nothing after what it has
            return
        raise
    with reply, part.open("ab" if reply.status == 206 else "wb") as file:
        have = have if reply.status == 206 else 0
        lacking = int(reply.headers.get("Content-Length") or 0)
        total, began = have + lacking if lacking else 0, have
        while block := reply.read(CHUNK):
            file.write(block)
            have += len(block)
            on_progress(have, total)
        if lacking and have - began < lacking:
            raise ConnectionError("the connection ended early")
