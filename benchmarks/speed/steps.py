"""Every algorithm's training step against AGG's, on the same net, data and precision, in one run.

    python benchmarks/speed/steps.py --net resnet18 --precision tf32          (a GPU)
    python benchmarks/speed/steps.py --net mlp --hidden 1024,128 --inputs 4096 --trials 20
    python benchmarks/speed/steps.py --net timm:vit_small_patch16_224 --precision bf16 --plain --compile

Images are random pixels: what they show does not change the time. The time is that of whole steps as `seqdg bench`
takes them: drawing the path and the minibatches, gathering them, augmentation, gradient and update.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from statistics import median

import torch
from torch import nn

from seqdg.bench import Group, RowsInMemory, Task, Trial, build_stack
from seqdg.core import build, format_settings, parse_settings
from seqdg.data import Dataset
from seqdg.nets import NetSpec, build_net
from seqdg.training import Protocol


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default="agg,fo-mldg,fo-s-mldg,ffo-s-mldg")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--hidden", default="1024,128", help="of an mlp")
    parser.add_argument("--inputs", type=int, default=4096, help="of an mlp")
    parser.add_argument("--size", type=int, default=224, help="side of the images")
    parser.add_argument("--policy", default="frozen", help="of BatchNorm; several, with commas between them, in turn")
    parser.add_argument("--precision", default="tf32", help="several, with commas between them, in turn")
    parser.add_argument("--domains", type=int, default=3, help="source domains")
    parser.add_argument("--batch", type=int, default=32, help="per domain")
    parser.add_argument("--trials", type=int, default=1, help="stacked")
    parser.add_argument("--augment", default="", help="recipe")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--fixed", action="store_true", help="the same batch every step: what the data cost is the rest"
    )
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    parser.add_argument("--compile", action="store_true", help="the step is compiled by torch's compiler")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="first AGG as a loop of plain torch, as it is and compiled, in a CUDA graph",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def make_data(options: argparse.Namespace) -> Dataset:
    rows, domains = 200 * (options.domains + 1), options.domains + 1
    generator = torch.Generator().manual_seed(0)
    if options.net == "mlp":
        x = torch.randn(rows, options.inputs, generator=generator)
    else:
        x = torch.randint(0, 256, (rows, 3, options.size, options.size), generator=generator, dtype=torch.uint8)
    y = torch.randint(0, 7, (rows,), generator=generator)
    names = tuple(f"d{i}" for i in range(domains))
    return Dataset("random", names, tuple("abcdefg"), x, y, torch.arange(rows) % domains, "random")


def make_trials(name: str, options: argparse.Namespace) -> tuple[Trial, ...]:
    """Of an algorithm's name, or one with a setting such as undo-bias@branches=head: one for each seed."""
    name, _, setting = name.partition("@")
    algorithm = parse_settings(build(name), dict([setting.split("=")] if setting else []))
    hidden = tuple(int(h) for h in options.hidden.split(",")) if options.net == "mlp" else ()
    settings = tuple(sorted(format_settings(algorithm).items()))
    protocol = Protocol(steps=10_000, batch=options.batch, lr=1e-4, precision=options.precision)
    return tuple(
        Trial("random", NetSpec(options.net, hidden), options.policy, None, name, settings, protocol,
              ("d0",), seed, options.domains, options.size, options.augment)
        for seed in range(options.trials)
    )  # fmt: skip


def make_task(options: argparse.Namespace) -> Task:
    """Random data of the shape that the options say."""
    return Task("random", RowsInMemory(make_data(options)), NetSpec(options.net), options.policy, Protocol())


def measure_plain(options: argparse.Namespace, compiled: bool) -> tuple[float, float]:
    """Milliseconds of a step of SGD with momentum on a fixed batch, recorded as a CUDA graph; seconds until it is."""
    device, spec = torch.device(options.device), NetSpec(options.net)
    began = time.perf_counter()
    shape = (3, options.size, options.size)
    module = build_net(spec, shape, 7, torch.Generator().manual_seed(0)).module.to(device)
    module.train(mode=options.policy != "frozen")
    x = torch.randn(options.domains * options.batch, *shape, device=device)
    y = torch.randint(0, 7, (len(x),), device=device)
    optimizer = torch.optim.SGD(module.parameters(), 1e-4, momentum=0.9, weight_decay=5e-5, foreach=True)
    predict = torch.compile(module) if compiled else module

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16"):
            out = predict(x)
        nn.functional.cross_entropy(out.float(), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    first, times = time.perf_counter() - began, []
    for _ in range(options.repeats):
        began = time.perf_counter()
        for _ in range(options.steps):
            graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / options.steps * 1e3)
    return median(times), first


def measure_milliseconds(name: str, options: argparse.Namespace, task: Task) -> tuple[float, float, float]:
    """Per step, the peak of memory in MiB beyond the data, and the seconds of the first eight steps."""
    device = torch.device(options.device)
    stack = build_stack(Group(make_trials(name, options)), task, device)
    stack.captures &= not options.eager
    stack.compiles = getattr(options, "compile", False)
    if options.fixed:
        batch = stack.inputs.load_step(*(stack._draw_steps(0, 0, 1)[name][0] for name in ("rows", "key")))
        stack.inputs.load_step = lambda rows, key: batch  # type: ignore[method-assign]
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    state = stack.advance(stack.start(), 8)
    first = time.perf_counter() - began
    times = []
    for _ in range(options.repeats):
        began = time.perf_counter()
        state = stack.advance(state, state.step + options.steps)
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / options.steps * 1e3)
    memory = (torch.cuda.max_memory_allocated() - before) / 2**20 if cuda else float("nan")
    return median(times), memory, first


def main() -> None:
    options = parse_options()
    task = make_task(options)
    for policy, precision in product(options.policy.split(","), options.precision.split(",")):
        print_table(argparse.Namespace(**{**vars(options), "policy": policy, "precision": precision}), task)


def print_table(options: argparse.Namespace, task: Task) -> None:
    where = torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu"
    shape = f"{options.domains} domains x {options.batch}" + (
        f", {options.trials} trials" if options.trials > 1 else ""
    )
    how = ("eager" if options.eager else "captured") + (", compiled" if options.compile else "")
    how += ", a fixed batch" if options.fixed else ""
    what = f"{options.net}, {shape}, BatchNorm {options.policy}, {options.precision}, {how}"
    print(f"{what}; {where}, torch {torch.__version__}", flush=True)
    for compiled in (False, True) if options.plain else ():
        time_of, first = measure_plain(options, compiled)
        how = "plain torch, compiled" if compiled else "plain torch"
        print(f"  {how:24} {time_of:8.2f} ms  first steps {first:.1f} s", flush=True)
    base = None
    for name in options.algorithms.split(","):
        time_of, memory, first = measure_milliseconds(name, options, task)
        base = base or (time_of, memory)
        print(f"  {name:24} {time_of:8.2f} ms  {time_of / base[0]:5.2f} x  {memory:8.0f} MiB  "
              f"{memory / base[1]:5.2f} x  first steps {first:.1f} s", flush=True)  # fmt: skip
        if options.device.startswith("cuda"):
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
