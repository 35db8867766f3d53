"""A sha256 in a file of all other bytes of the file, so that a bit that flips on a disk is noticed when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SEAL_SIZE = 64  # bytes of a sha256 in hexadecimal digits
_KEY = "seqdg.sha256"  # in the metadata of a safetensors file
_MARK = f'"{_KEY}":"'.encode()


def hash_others(content: bytes | memoryview, at: int) -> bytes:
    """Return the sha256, as SEAL_SIZE digits, of all but the SEAL_SIZE bytes that begin at `at`."""
    view = memoryview(content)
    digest = hashlib.sha256(view[:at])
    digest.update(view[at + SEAL_SIZE :])
    return digest.hexdigest().encode()


def is_intact(content: bytes | memoryview, at: int) -> bool:
    """Say whether the seal that begins at `at` is that of all other bytes."""
    return bytes(content[at : at + SEAL_SIZE]) == hash_others(content, at)


def find_seal(content: bytes) -> int | None:
    """Find where the seal of a safetensors file begins; None: it has none."""
    start = content.find(_MARK, 8, 8 + int.from_bytes(content[:8], "little"))
    return None if start < 0 else start + len(_MARK)


def has_broken_seal(content: bytes) -> bool:
    """Say whether a safetensors file has a seal that is not that of its other bytes; files of others have none."""
    at = find_seal(content)
    return at is not None and not is_intact(content, at)


def save_sealed(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """Return tensors and what is said about them as a safetensors file with a seal in its metadata, always the same."""
    from safetensors.torch import save

    content = _sort_header(save(dict(tensors), {**about, _KEY: "0" * SEAL_SIZE}))
    at = find_seal(content)
    assert at is not None
    return b"".join((content[:at], hash_others(content, at), content[at + SEAL_SIZE :]))


def _sort_header(content: bytes) -> bytes:
    """Return a safetensors file with its metadata sorted, which safetensors writes in an order that it draws."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of eight bytes
    return b"".join((len(text).to_bytes(8, "little"), text, content[end:]))
