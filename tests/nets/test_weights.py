"""Weight files: what is loaded, and what is refused in a sentence."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from seqdg.base import UsageError, save_sealed
from seqdg.nets import alexnet, initialize, mlp, resnet18, weights


def small(classes: int = 3, seed: int = 0) -> nn.Module:
    return initialize(lambda: mlp(6, (5,), classes, batchnorm=True), torch.Generator().manual_seed(seed))


def write(state: dict[str, Tensor], path: Path) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("name", ["w.pth", "w.pt", "w.safetensors"])
def test_a_file_of_the_same_net_is_loaded_whole_and_its_hash_returned(tmp_path: Path, name: str):
    source, net = small(seed=1), small(seed=2)
    path = write(source.state_dict(), tmp_path / name)
    assert weights.load_weights(net, path) == hashlib.sha256(path.read_bytes()).hexdigest()
    for key, tensor in source.state_dict().items():
        assert torch.equal(net.state_dict()[key], tensor), key


def test_kept_weights_that_changed_since_they_were_written_are_refused(tmp_path: Path):
    source, net, path = small(seed=1), small(seed=2), tmp_path / "w.safetensors"
    content = bytearray(save_sealed(source.state_dict(), {"step": "3"}))
    path.write_bytes(content)
    weights.load_weights(net, path)
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"w\.safetensors is damaged: its bytes have changed since it was written"):
        weights.load_weights(net, path)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_head_for_other_classes_is_left_in_the_file(tmp_path: Path, name: str):
    source, net = small(classes=10, seed=1), small(classes=3, seed=2)
    fresh = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    weights.load_weights(net, write(source.state_dict(), tmp_path / name))
    for key, tensor in net.state_dict().items():
        assert torch.equal(tensor, fresh[key] if key.startswith("head.") else source.state_dict()[key]), key


def test_a_torchvision_file_of_resnet18_loads_into_a_net_of_seven_classes(tmp_path: Path):
    """The layout of resnet18-5c106cde.pth: torch's oldest file format, and no counters in its BatchNorms."""
    source = initialize(lambda: resnet18(1000), torch.Generator().manual_seed(1))
    published = {k: v for k, v in source.state_dict().items() if not k.endswith("num_batches_tracked")}
    assert len(published) == 102
    path = tmp_path / "resnet18-5c106cde.pth"
    torch.save(published, path, _use_new_zipfile_serialization=False)
    net = initialize(lambda: resnet18(7), torch.Generator().manual_seed(2))
    weights.load_weights(net, path)
    assert net.fc.weight.shape == (7, 512)
    for key, tensor in published.items():
        assert key.startswith("fc.") or torch.equal(net.state_dict()[key], tensor), key


@pytest.mark.slow
def test_a_torchvision_file_of_alexnet_loads_into_a_net_of_seven_classes(tmp_path: Path):
    source = initialize(lambda: alexnet(1000), torch.Generator().manual_seed(1))
    path = write(source.state_dict(), tmp_path / "alexnet-owt-7be5be79.pth")
    net = initialize(lambda: alexnet(7), torch.Generator().manual_seed(2))
    weights.load_weights(net, path)
    assert torch.equal(net.classifier[4].weight, source.classifier[4].weight)
    assert net.classifier[6].weight.shape == (7, 4096)


def test_half_precision_weights_are_widened(tmp_path: Path):
    source, net = small(seed=1), small(seed=2)
    halved = {k: v.half() if v.is_floating_point() else v for k, v in source.state_dict().items()}
    weights.load_weights(net, write(halved, tmp_path / "w.safetensors"))
    assert net.linear1.weight.dtype == torch.float32
    assert torch.equal(net.linear1.weight, source.linear1.weight.half().float())


def changed(state: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    state = dict(state)
    if kind == "missing":
        del state["linear1.bias"]
    elif kind == "strange":
        state["extra.weight"] = torch.zeros(2)
    elif kind == "shape":
        state["linear1.weight"] = torch.zeros(5, 7)
    elif kind == "head without bias":
        del state["head.bias"]
    elif kind == "head of other features":
        state["head.weight"] = torch.zeros(3, 9)
    return state


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("missing", r"it lacks linear1\.bias\."),
        ("strange", r"the net has no extra\.weight\."),
        ("shape", r"shapes differ in linear1\.weight \(5, 7\) for \(5, 6\)\."),
        ("head without bias", r"it lacks head\.bias\."),
        ("head of other features", r"shapes differ in head\.weight \(3, 9\) for \(3, 5\)\."),
    ],
)
def test_what_does_not_match_is_named_and_nothing_is_loaded(tmp_path: Path, kind: str, sentence: str):
    net = small(seed=2)
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    path = write(changed(small(seed=1).state_dict(), kind), tmp_path / "other.safetensors")
    with pytest.raises(UsageError, match=rf"other\.safetensors does not fit the net: {sentence}"):
        weights.load_weights(net, path)
    assert all(torch.equal(tensor, before[key]) for key, tensor in net.state_dict().items())


def test_many_mismatches_are_counted_rather_than_listed(tmp_path: Path):
    path = write({f"a{i}": torch.zeros(1) for i in range(9)}, tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"the net has no a0, a1, a2 and 6 more"):
        weights.load_weights(small(), path)


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("how", ["torch.save", "pickle"])
def test_objects_to_unpickle_are_refused_and_not_run(tmp_path: Path, how: str):
    path, sprung = tmp_path / "w.pth", tmp_path / "sprung"
    state = {**small().state_dict(), "config": Trap(sprung)}
    if how == "torch.save":
        torch.save(state, path)
    else:
        path.write_bytes(pickle.dumps({"config": Trap(sprung)}))
    with pytest.raises(UsageError, match=r"w\.pth holds more than tensors"):
        weights.load_weights(small(), path)
    assert not sprung.exists()
    if how == "pickle":
        pickle.loads(path.read_bytes())
        assert sprung.exists(), "the trap works, so that not having sprung says something"


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str, kept: float):
    path = write(small().state_dict(), tmp_path / name)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(UsageError, match=r"is not a whole|or is no weight file at all"):
        weights.load_weights(small(), path)


def test_a_file_of_the_oldest_format_cut_anywhere_is_refused(tmp_path: Path):
    path = tmp_path / "w.pth"
    torch.save(small().state_dict(), path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    for kept in range(0, len(content), 7):
        path.write_bytes(content[:kept])
        with pytest.raises(UsageError, match=r"is not a whole|or is no weight file at all"):
            weights.load_weights(small(), path)


def test_a_file_that_is_no_state_dict_is_refused(tmp_path: Path):
    path = tmp_path / "w.pth"
    torch.save({"epoch": 3, "model": small().state_dict()}, path)
    with pytest.raises(UsageError, match=r"w\.pth is not a state dict"):
        weights.load_weights(small(), path)


def test_a_missing_file_and_a_strange_suffix_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"nowhere\.pth cannot be read \(No such file"):
        weights.load_weights(small(), tmp_path / "nowhere.pth")
    with pytest.raises(UsageError, match=r"w\.ckpt is not a weight file by its name\. Give one that ends in"):
        weights.load_weights(small(), tmp_path / "w.ckpt")


def test_a_net_without_a_linear_layer_has_no_head():
    with pytest.raises(UsageError, match="has no linear layer"):
        weights.find_head(nn.ReLU())
