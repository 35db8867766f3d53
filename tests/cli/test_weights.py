"""`--weights FILE`: what a net starts from, as the user gives it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import safetensors.torch
import torch

from seqdg.nets import initialize, resnet18
from seqdg.results import Store

NET = 'name = "resnet18"\npretrained = true\npolicy = "frozen"\nsize = 32'
FIXED = "lr = 0.0\nweight_decay = 0.0"  # so that what is deployed is what was loaded, but for a head of its own


@pytest.fixture(scope="module")
def published() -> dict[str, torch.Tensor]:
    """A state dict with torchvision's names, for 1000 classes."""
    return dict(initialize(lambda: resnet18(1000), torch.Generator().manual_seed(1)).state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18-f37072fd.pth", "resnet18.safetensors"])
def test_a_net_starts_from_the_file_and_every_record_has_its_hash(
    seqdg, pictures, benchmark_file, tmp_path, published, name
):
    file, out = tmp_path / name, tmp_path / "run"
    (torch.save if file.suffix == ".pth" else safetensors.torch.save_file)(published, file)
    words = ["bench", benchmark_file(net=NET, protocol=FIXED), "--data", pictures, "--held-out", "photo", "--out", out]
    done = seqdg(*words, "--weights", file, "--save-weights")
    assert done.returncode == 0, done.stderr
    (record,) = Store.open(out).records()
    assert record.description["net"]["weights"] == hashlib.sha256(file.read_bytes()).hexdigest()
    deployed = safetensors.torch.load_file(out / "weights" / f"{record.key}.safetensors")
    assert deployed["fc.weight"].shape == (2, 512)
    shared = [n for n in published if n in deployed and not n.startswith("fc.")]
    assert len(shared) > 50
    assert all(torch.equal(deployed[n], published[n]) for n in shared)


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_file_with_an_object_to_unpickle_is_refused_and_nothing_in_it_runs(
    seqdg, pictures, benchmark_file, tmp_path, published
):
    file, sprung = tmp_path / "w.pth", tmp_path / "sprung"
    torch.save({**published, "config": Trap(sprung)}, file)
    expect(seqdg, benchmark_file(net=NET), pictures, file, "w.pth holds more than tensors")
    assert not sprung.exists()


def test_a_file_that_is_absent_or_of_another_net_is_refused(seqdg, pictures, benchmark_file, tmp_path, published):
    file = tmp_path / "other.pth"
    expect(
        seqdg, benchmark_file(net=NET), pictures, file, "cannot be read (No such file or directory). Check the path."
    )
    torch.save({k: v for k, v in published.items() if k != "conv1.weight"}, file)
    expect(seqdg, benchmark_file(net=NET), pictures, file, "other.pth does not fit the net: it lacks conv1.weight.")


def test_a_net_whose_public_weights_are_not_installed_asks_for_them(seqdg, pictures, benchmark_file):
    expect(seqdg, benchmark_file(net=NET), pictures, None, "(torchvision's resnet18-f37072fd.pth) with --weights FILE.")


def expect(seqdg, benchmark: Path, root: Path, file: Path | None, sentence: str) -> None:
    given = [] if file is None else ["--weights", file]
    done = seqdg("bench", benchmark, "--data", root, "--out", root / "run", *given)
    assert done.returncode == 2
    assert not done.stdout
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
