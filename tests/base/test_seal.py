"""A seal is the hash of all other bytes of a file."""

from __future__ import annotations

import hashlib

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load

from seqdg.base import SEAL_SIZE, find_seal, has_broken_seal, hash_others, is_intact, save_sealed

TENSORS = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2])}


def test_a_seal_at_the_end_is_the_sha256_of_what_comes_before():
    content = b"pixels" + b"?" * SEAL_SIZE
    assert hash_others(content, 6).decode() == hashlib.sha256(b"pixels").hexdigest()
    assert not is_intact(content, 6)
    assert is_intact(b"pixels" + hash_others(content, 6), 6)


@pytest.mark.parametrize("size", [0, 5, SEAL_SIZE - 1])
def test_what_is_shorter_than_a_seal_has_none(size):
    assert not is_intact(b"x" * size, size - SEAL_SIZE)


def test_a_sealed_file_of_tensors_is_an_ordinary_one(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(save_sealed(TENSORS, {"step": "3"}))
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        assert file.metadata()["step"] == "3"
        for name, tensor in TENSORS.items():
            assert torch.equal(file.get_tensor(name), tensor)


def test_the_same_tensors_are_always_the_same_bytes():
    about = {name: f"'{name}' \"\n\x01 é \U0001f600" for name in "zyxabc"}
    content = save_sealed(TENSORS, about)
    assert {save_sealed(TENSORS, dict(reversed(about.items()))) for _ in range(20)} == {content}
    assert int.from_bytes(content[:8], "little") % 8 == 0
    assert torch.equal(load(content)["w"], TENSORS["w"])


def test_every_flipped_bit_of_a_sealed_file_is_noticed():
    content = save_sealed(TENSORS, {"step": "3"})
    assert not has_broken_seal(content)
    for bit in range(8 * len(content)):
        data = bytearray(content)
        data[bit // 8] ^= 1 << bit % 8
        at = find_seal(bytes(data))
        assert at is None or not is_intact(data, at)


def test_files_of_others_have_no_seal_to_break():
    from safetensors.torch import save

    content = save(TENSORS, {"sha256": "0" * SEAL_SIZE})
    assert find_seal(content) is None
    assert not has_broken_seal(content)
    assert torch.equal(load(content)["w"], TENSORS["w"])
