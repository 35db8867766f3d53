"""How long the depthwise convolutions of EfficientNet-Lite0 take by our kernels and by torch (cuDNN), on a GPU.

    python benchmarks/speed/depthwise.py
    python benchmarks/speed/depthwise.py --images 96 --precision bfloat16 --tiles

First the largest error of each kernel, in units of the largest number, against double precision on eight images. Then
milliseconds of the output with shift and ReLU6, of the gradients of input and weights, and of that of what the ReLU6
before was applied to, layer by layer and for all layers of the net; "least" is what the memory traffic would take.
torch's times hold the copies for TensorFlow's padding, and a pass of ours for a ReLU6. Every time is the median over
replays of a CUDA graph with several calls. --tiles tries other tile shapes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.kernels import normalization, windows
from seqdg.kernels.geometry import RELU6, Depthwise, Geometry, find_depthwise, lay_out_by_position, pad_same
from seqdg.kernels.windows import Tile
from seqdg.nets.backbones import STAGES

RATE = 4.2e9  # bytes per millisecond, of an H200
KERNELS = ("output", "d input", "d weights", "d before ReLU6")
TRIED = {
    3: [
        Tile(16), Tile(16, 32, 2), Tile(16, 32, 3), Tile(32), Tile(32, 32, 2), Tile(16, 64), Tile(16, 64, 2),
        Tile(32, 32, 2, 8), Tile(8, 32, 2, 2),
    ],
    5: [
        Tile(16), Tile(16, 32, 2), Tile(8), Tile(8, 32, 2), Tile(8, 64), Tile(32, 32, 1, 8), Tile(8, 32, 1, 2),
        Tile(8, 32, 2, 2),
    ],
}  # fmt: skip


class Layer(NamedTuple):
    size: int
    stride: int
    channels: int
    length: int


def list_layers(length: int) -> dict[Layer, int]:
    """Count the depthwise layers of each kind."""
    counts: dict[Layer, int] = {}
    inputs, length = 32, -(-length // 2)
    for size, stride, expansion, outputs, depth in STAGES:
        for i in range(depth):
            step = stride if i == 0 else 1
            layer = Layer(size, step, inputs * expansion, length)
            counts[layer] = counts.get(layer, 0) + 1
            inputs, length = outputs, -(-length // step)
    return counts


class Case(NamedTuple):
    """A layer with numbers in it."""

    x: Tensor
    w: Tensor
    g: Tensor
    shift: Tensor
    geometry: Geometry
    shape: Depthwise


def make_case(layer: Layer, images: int, dtype: torch.dtype) -> Case:
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*size: int) -> Tensor:
        t = torch.randn(size, generator=generator, device="cuda")
        return t.to(dtype).contiguous(memory_format=torch.channels_last)

    x = draw(images, layer.channels, layer.length, layer.length)
    w = draw(layer.channels, 1, layer.size, layer.size)
    geometry = ((layer.stride, layer.stride), "same", (1, 1), layer.channels)
    shape = find_depthwise(x, w, geometry)
    assert shape is not None
    g = draw(images, layer.channels, shape.down, shape.along)
    shift = torch.randn(layer.channels, generator=generator, device="cuda")
    return Case(x, lay_out_by_position(w), g, shift, geometry, shape)


def compute_by_kernels(case: Case) -> list[Callable[[], Tensor]]:
    x, w, g, shift, _, shape = case
    return [
        lambda: windows.convolve(x, w, shape, shift, None, RELU6),
        lambda: windows.differentiate_input(g, w, x, shape)[0],
        lambda: windows.differentiate_weights(g, x, shape),
        lambda: windows.differentiate_input(g, w, x, shape, RELU6)[0],
    ]


def compute_by_torch(case: Case) -> list[Callable[[], Tensor]]:
    x, w, g, shift, geometry, _ = case
    w = w.contiguous()
    padded, (stride, padding, dilation, groups) = pad_same(x, w, geometry)
    top, left = (case.shape.top, case.shape.left) if padded is not x else (0, 0)

    def convolve() -> Tensor:
        y = torch.ops.aten.convolution(
            pad_same(x, w, geometry)[0], w, None, stride, padding, dilation, False, (0, 0), groups
        )
        y = y.contiguous(memory_format=torch.channels_last)
        return normalization.shift_act(y, shift, None, RELU6) if y.dtype is not torch.float64 else y

    def convolve_back(*wanted: bool) -> list[Tensor]:
        result: list[Tensor] = torch.ops.aten.convolution_backward(
            g, padded, w, None, stride, padding, dilation, False, (0, 0), groups, wanted
        )
        return result

    def differentiate_input() -> Tensor:
        d = convolve_back(True, False, False)[0]
        d = d[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        return d.contiguous(memory_format=torch.channels_last)

    def differentiate_before() -> Tensor:
        d = differentiate_input()
        return normalization.shift_act_back(d, x, RELU6)[0] if d.dtype is not torch.float64 else d

    return [convolve, differentiate_input, lambda: convolve_back(False, True, False)[1], differentiate_before]


def measure_errors(layer: Layer, dtype: torch.dtype) -> list[float]:
    case = make_case(layer, 8, dtype)
    exact = case._replace(x=case.x.double(), w=case.w.double(), g=case.g.double())
    y, d_x, d_w, d_before = (compute() for compute in compute_by_torch(exact))
    y = (y + exact.shift.reshape(-1, 1, 1)).clamp(0, 6)
    d_before = torch.where((exact.x > 0) & (exact.x < 6), d_before, 0.0)
    found = (compute() for compute in compute_by_kernels(case))
    return [float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, (y, d_x, d_w, d_before), strict=True)]


def measure(compute: Callable[[], Tensor], calls: int = 10, repeats: int = 7) -> float:
    """Return the milliseconds of one call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        compute(), compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            compute()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 2)]
    for event in events:
        event.record()
        graph.replay()
    torch.cuda.synchronize()
    return median(a.elapsed_time(b) / calls for a, b in pairwise(events[1:]))


def count_bytes(case: Case) -> list[int]:
    """Count the bytes that each kernel must move."""
    x, g = (t.numel() * t.element_size() for t in (case.x, case.g))
    return [x + g, x + g, x + g, 2 * x + g]


def compare(layers: dict[Layer, int], images: int, dtype: torch.dtype) -> None:
    print(f"\n{images} images, {dtype}: milliseconds of kernels / torch / least")
    print(f"{'layer':>26}" + "".join(f"{name:>24}" for name in KERNELS))
    sums = [[0.0, 0.0, 0.0] for _ in KERNELS]
    for layer, count in layers.items():
        case, cells = make_case(layer, images, dtype), []
        both = zip(compute_by_kernels(case), compute_by_torch(case), count_bytes(case), strict=True)
        for total, (ours, theirs, moved) in zip(sums, both, strict=True):
            times = (measure(ours), measure(theirs), moved / RATE)
            cells.append(times)
            for i, t in enumerate(times):
                total[i] += count * t
        name = f"{count} x {layer.size}x{layer.size}/{layer.stride} {layer.channels:4} x {layer.length}"
        print(f"{name:>26}" + "".join(f"{a:10.4f}{b:8.4f}{c:6.3f}" for a, b, c in cells), flush=True)
    print(f"{'all layers':>26}" + "".join(f"{a:10.4f}{b:8.4f}{c:6.3f}" for a, b, c in sums))
    ours, theirs, least = (sum(column) for column in zip(*sums[:3], strict=True))
    print(
        f"{'the first three':>26}{ours:10.4f}{theirs:8.4f}{least:6.3f}   {theirs / ours:.2f} x as fast as torch",
        flush=True,
    )


def try_tiles(layers: dict[Layer, int], images: int, dtype: torch.dtype) -> None:
    """Print the sum over all layers of a kind for every tile, the fastest first; then for other numbers of programs."""
    print(f"\n{images} images, {dtype}: milliseconds by tile (columns, channels, rows ahead, warps)")
    for kind in sorted({(layer.size, layer.stride) for layer in layers}):
        cases = [(make_case(layer, images, dtype), n) for layer, n in layers.items() if layer[:2] == kind]

        def add_up(k: int, cases: list[tuple[Case, int]] = cases) -> float:
            return sum(n * measure(compute_by_kernels(case)[k]) for case, n in cases)

        for k, name in enumerate(KERNELS):
            usual, times = windows.TILES[kind[0]], []
            for tile in TRIED[kind[0]]:
                windows.TILES[kind[0]] = tile
                times.append((add_up(k), tuple(tile)))
            windows.TILES[kind[0]] = usual
            text = "  ".join(f"{t:.4f} {tile}" for t, tile in sorted(times))
            print(f"{kind[0]}x{kind[0]}/{kind[1]} {name:9} now {add_up(k):.4f}: {text}", flush=True)
            counts, values = (windows.PROGRAMS, (792, 1584, 3168, 6336))
            if k == 2:
                counts, values = (windows.SUMMING, (264, 396, 528, 660, 1320))
            before, text = counts[kind[0]], ""
            for counts[kind[0]] in values:
                text += f"  {add_up(k):.4f} {counts[kind[0]]}"
            counts[kind[0]] = before
            print(f"{'':13} by number of programs: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", default="96,32", help="of a minibatch; several, in turn")
    parser.add_argument("--precision", default="bfloat16,float32", help="several, in turn")
    parser.add_argument("--size", type=int, default=224, help="side of the images")
    parser.add_argument("--tiles", action="store_true", help="try other tile shapes instead")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True  # as in training
    layers = list_layers(options.size)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name in options.precision.split(","):
        dtype = getattr(torch, name)
        errors = [measure_errors(layer, dtype) for layer in layers]
        worst = zip(KERNELS, (max(column) for column in zip(*errors, strict=True)), strict=True)
        print(f"\n{name}, largest errors: " + ", ".join(f"{kernel} {error:.1e}" for kernel, error in worst))
        for images in map(int, options.images.split(",")):
            (try_tiles if options.tiles else compare)(layers, images, dtype)


if __name__ == "__main__":
    main()
