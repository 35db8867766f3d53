"""Write docs/algorithms.md from the code: `python scripts/make_docs.py`. A test checks that it is current."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch.func import grad_and_value
from torch.utils.flop_counter import FlopCounterMode

import seqdg
from seqdg import Algorithm, Episode, Net, Range, Sequential
from seqdg.bench import ArrayLearner, find_learner, list_learners, load_benchmark
from seqdg.bench.search import MULTIPLES
from seqdg.core import collect_rules, find_wrapper, list_alone
from seqdg.nets import mlp

PAGE = Path(__file__).parents[1] / "docs" / "algorithms.md"
BENCHMARKS = {"ixmas": "IXMAS", "vlcs": "VLCS", "pacs": "PACS", "pacs-alexnet": "PACS (AlexNet)"}
LISTED = ("fo-s-mldg", "ffo-s-mldg", "s-undo-bias")  # by appendix C of the paper
SOURCES, BATCH, WIDTHS = 3, 32, (1024, 256, 64, 7)

INTRODUCTION = f"""# Algorithms

Generated from the code by `python scripts/make_docs.py`: do not edit.

`seqdg.build("NAME", setting=value)` builds one; on the command line, `--set NAME.setting=value` changes a setting.
[Wrappers](#wrappers) go around any of them: `fo-s-mldg+mixup+ema`.
Below, w are the weights, D_1, ..., D_N the minibatches of the source domains in the order in which a step meets them
(the path, drawn again for every step), and l(D_i, w) the mean loss on one of them.

*Cost* is the arithmetic of one step, in units of one gradient of the net's loss on the minibatch of one domain:
floating-point operations, counted for {SOURCES} source domains of {BATCH} rows on a fully connected net
{"-".join(map(str, WIDTHS))}. Aggregation takes {SOURCES}.

Equation 3 of Li et al. (2020) looks ahead along the sum of past losses without beta, their Algorithm 1 along a sum that
contains it. They agree where only the last beta is not 1, as in all of the paper's settings but those for AlexNet,
which it cuts. We follow Algorithm 1. [Fidelity to the paper](fidelity.md) goes through the rest.

*Search* is the range from which `--search` draws. For every algorithm, `agg` too, it also draws the learning rate, from
{MULTIPLES[0]:g} to {MULTIPLES[1]:g} times that of the benchmark. The paper's appendix C lists settings for
{", ".join(f"`{n}`" for n in LISTED)}; the settings of other algorithms in the paper's benchmarks are ours, and those
not shown are the defaults.

*Modern baselines* follow DomainBed's conventions: which mean, which pairs, which normalization. On the same net and
minibatches `agg`, `coral`, `mmd`, `vrex`, `irm`, `sd`, `ib-erm`, `ib-irm`, `iga`, `group-dro`, `and-mask`, `sand-mask`,
`rsc`, `cad` and, with the same cuts, `causirl` give its gradients, as a test shows where `$SEQDG_DOMAINBED` names a
checkout of it. Its defaults presuppose Adam at a rate of 5e-5 and thousands of steps; where training with momentum at a
larger rate does not stand them, the default here is smaller, and the setting's line says so. A penalty that is weak at
first (`anneal`) makes two stages, the second with a new optimizer, as there; a weight below 1 holds from the start.

*Where DomainBed is wrong*, ours is right. Its MTL overwrites every embedding with noise. Its MLDG takes the look-ahead
step by a new Adam each time, whose first step has the signs of the gradient and not its lengths. The projection of its
CAD (`is_project`) names a variable that does not exist, and is left out here.

*Transductive* are `arm`, `mtl` and `t3a`: they learn from the rows of the unseen domain that are predicted together,
which no other algorithm sees. Tables and reports name them.

*Which bases chain.* A penalty that is a symmetric function of the domains folds into itself: `Sequential` of `vrex`, or
of `coral` by pairs, is the plain method times the number of domains, whatever the path. It warns, and has no name.
Sequential learning adds something only where the past is acted on (a look-ahead), pooled or held fixed: `s-coral`,
`s-irm` and `s-group-dro` look ahead, and without their penalty they are FO-S-MLDG.
"""


WRAPPERS = """## Wrappers

A wrapper is added to any algorithm by a `+` after its name: `agg+ema`, `fo-s-mldg+mixup+ema`, and in Python
`seqdg.build("fo-s-mldg+mixup+ema", alpha=0.05, decay=0.99)`. A chain is read from the inside out, and it has this
order: `mixup`, `l2sp`, `sam` or `sagm`, `lp`, `lora`, then `ema`, `sma`, `swad` or `wise`; at most one of each kind;
anything else is an error that says so. Each part may come from a file of your own: `agg+./mine.py:mine+ema` ([how to
write one](../CONTRIBUTING.md#a-wrapper)).

What a benchmark's table or `--set` says of an algorithm holds for the chains around it too: `--set fo-s-mldg.lr=0.05`
is also the rate of `fo-s-mldg+ema`. `--set 'fo-s-mldg+ema.lr=0.1'` and `[algorithms."fo-s-mldg+ema"]` come before it.
`--search` draws the settings of a wrapper like any other.

*Averages change no training.* `agg`, `agg+ema`, `agg+sma` and `agg+swad` of one plan train once and give four
records, each as if it had been trained alone, to the bit. In an algorithm of several stages the average starts anew
with each.

*Memory.* What an algorithm carries from step to step (the weights of the domains of `group-dro`, an average) is its
memory. No optimizer touches it. It is stacked, checkpointed and resumed with the weights.

*Learning rates.* The protocol of a benchmark, or `--set agg.schedule=cosine` for one algorithm and its chains, has a
`schedule`: `constant`, `cosine` (falls to 0), or `steps` (falls by the factor `drop`, 0.1, after every share
`drop_every`, 0.3, of the steps). `warmup` is the share of the steps over which the rate first rises from 0. Trials
with other schedules train in one stack. `optimizer` is `sgd`, `momentum`, `adam` (with decoupled weight decay, as
torch's AdamW) or `adam-l2` (with weight decay in the gradient, as torch's Adam and DomainBed have it).

*A sum over domains wants a smaller rate.* `undo-bias` and every sequential form sum over the domains where `agg`
takes their mean. Under `momentum` and `sgd`, a rate that neither you nor the benchmark's table for that algorithm
gives is therefore the protocol's divided by the number of domains in a step. Adam makes up for it by itself.

*The path.* Every step visits the domains in an order of its own, drawn at random. With `path = "fixed"` in a
benchmark's `[protocol]`, or `--set fo-s-mldg.path=fixed`, it is always that of the data set; the rows are the same. So
the random path can be measured against none. Algorithms that treat all domains alike (`agg`, `coral`) are the same
either way.

*Some of many domains.* With `domains_per_step = 6` in a benchmark's `[protocol]`, or `--set agg.domains_per_step=6`, a
step meets 6 of the source domains, drawn at random, and the path is over those. They are drawn in rounds: of 35, five
steps meet 30 different ones; then another round begins. What a step takes in time and memory does not grow with the
number of domains, but for what an algorithm holds for each: a copy of weights (`undo-bias`, `s-undo-bias`, `ensemble`,
`metareg`, `d-mtae`, `dsn`, `tf-cnn`, `fusion`), an output of a domain classifier (`dann`, `cdann`, `crossgrad`,
`fusion`) or an entry of its memory (`group-dro`, `s-group-dro`, `fishr`, `mtl`). A copy is trained, and an entry
changes, in the steps that meet its domain; Undo-Bias draws together the copies of the domains that a step meets. All
algorithms of this page can be trained so. One of yours that cannot says `needs_all = True`.
"""


LEARNERS = """## Learners

Methods that are no neural nets: estimators of scikit-learn's kind, fitted once to rows of numbers. `seqdg bench
--algorithms agg,NAME` sets them beside the nets, on the same splits and seeds, and `--set NAME.setting=value` changes a
setting. They know no steps and refuse images. `seqdg.compare`, `seqdg fit --choose --candidates
agg,NAME` and `DomainClassifier("NAME")` take them too. Those of scikit-learn are saved by skops and exported to ONNX
by skl2onnx (`pip install 'seqdg[onnx]'`); LightGBM, XGBoost and CatBoost (`pip install 'seqdg[boosting]'`) are saved in
their own formats, others as arrays, and neither is exported.
[How to write one](../CONTRIBUTING.md#a-learner-that-is-no-neural-net).

`+standardize` or `+combat` after the name of any of them (`logistic+combat`, `lightgbm+standardize`) harmonizes the
numbers of every domain before the learner sees them: to the mean and deviation of the sources, or by ComBat (Johnson,
Li and Rabinovic, 2007), which shrinks the shift of each column towards that of the others. An unseen domain is
harmonized by its own rows, without labels: give them together, two at least and better some dozens. Leaderboards say
that such a candidate is transductive. Where a domain's mean moves because its share of a class differs, and not its
scanner, harmonization also removes what tells the classes apart: compare it with the plain learner.
"""


def names() -> list[str]:
    """Those of this package, a base before its sequential form."""
    own = [name for name in seqdg.list_algorithms() if base_of(seqdg.build(name)).__module__.startswith("seqdg.")]
    return sorted(own, key=lambda name: (name.replace("s-", ""), len(name)))


def base_of(algorithm: Algorithm) -> type[Algorithm]:
    return type(algorithm.base) if isinstance(algorithm, Sequential) else type(algorithm)


def costs(of: Sequence[str] | None = None) -> dict[str, str]:
    """By algorithm; of one with several stages, of each."""
    net = Net(mlp(WIDTHS[0], WIDTHS[1:-1], WIDTHS[-1]), "none")
    g = torch.Generator().manual_seed(0)
    episode = Episode(
        x=torch.randn((SOURCES, BATCH, WIDTHS[0]), generator=g),
        y=torch.randint(WIDTHS[-1], (SOURCES, BATCH), generator=g),
        domain=torch.arange(SOURCES),
        progress=torch.tensor(0.5),
    )
    one = operations(lambda: grad_and_value(net.loss)(net.params(), episode.minibatch(0)))
    found = {}
    for name in names() if of is None else of:
        algorithm = seqdg.build(name)
        params = algorithm.init(net, net.params(), SOURCES, g)
        memory = algorithm.memory(net, params, SOURCES)
        stages = [
            operations(lambda s=stage, p=params, m=memory: s.step(net, p, m, episode))
            for _, stage in algorithm.stages()
        ]
        found[name] = ", then ".join(f"{count / one:.1f}" for count in stages)
    return found


def operations(work: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def page() -> str:
    cost = costs()
    kinds = {base_of(seqdg.build(name)): name for name in reversed(names())}  # the shortest name of each class
    rows = [f"| [`{name}`](#{name}) | {title(name, kinds)} | {cost[name]} |" for name in names()]
    table = "\n".join(["| name | what | cost |", "|---|---|---|", *rows])
    sections = [section(name, kinds, cost[name]) for name in names()]
    return (
        "\n\n".join(
            [INTRODUCTION.strip(), table, *sections, WRAPPERS.strip(), *wrapper_sections(), *learner_sections()]
        )
        + "\n"
    )


def wrapper_sections() -> list[str]:
    """A table of all wrappers, and a section each."""
    kinds = {name: find_wrapper(name) for name in seqdg.list_wrappers()}
    own = {name: kind for name, kind in kinds.items() if kind.__module__.startswith("seqdg.")}
    cost = costs([f"agg+{name}" for name in own])
    titles = {name: paragraphs(kind)[0].replace("\n", " ").rstrip(".") for name, kind in own.items()}
    rows = [f"| [`+{name}`](#{name}) | {titles[name]} | {cost[f'agg+{name}']} |" for name in own]
    table = "\n".join(["| name | what | cost of `agg` with it |", "|---|---|---|", *rows])
    sections = []
    for name, kind in own.items():
        parts = [f"## +{name}", *body(kind), settings_table(f"agg+{name}", kind(seqdg.build("agg")), kind)]
        sections.append("\n\n".join(parts))
    return [table, *sections]


def learner_sections() -> list[str]:
    """A section for each learner of this package: what its class says, and the class of its estimator."""
    sections = [LEARNERS]
    for name in list_learners():
        learner = find_learner(name)
        if not isinstance(learner, ArrayLearner) or not type(learner).__module__.startswith("seqdg."):
            continue
        kinds = [type(learner), learner.estimator]
        texts = [text for kind in kinds if kind is not None for text in paragraphs(kind)]
        meanings = {n: m for text in texts for n, m in explained(learner.settings, text).items()}
        missing = [n for n in learner.settings if n not in meanings]
        if missing:
            raise SystemExit(f"A docstring of {name} needs a line `{missing[0]}: what it means`, after a blank line.")
        rows = [
            f"| `{n}` | {meanings[n]} | {shown(default)} | {searched(rule.get('search'))} |"
            for n, (default, rule) in collect_rules(learner.build_settings(name)).items()
        ]
        table = "\n".join(["| setting | meaning | default | search |", "|---|---|---|---|", *rows])
        said = [text for text in texts if not explained(learner.settings, text)]
        sections.append("\n\n".join([f"### {name}", *said, table]))
    return sections


def title(name: str, kinds: dict[type[Algorithm], str]) -> str:
    """The first sentence of the docstring, with the paper."""
    algorithm = seqdg.build(name)
    if kinds[base_of(algorithm)] != name:
        return f"sequential learning of `{kinds[base_of(algorithm)]}` (Li et al. 2020)"
    return paragraphs(base_of(algorithm))[0].replace("\n", " ").rstrip(".")


def section(name: str, kinds: dict[type[Algorithm], str], cost: str) -> str:
    algorithm = seqdg.build(name)
    kind = base_of(algorithm)
    parts = [f"## {name}"]
    base = kinds[kind]
    if base != name:
        parts += [f"`Sequential({kind.__name__})`, with the settings of [`{base}`](#{base}).", *body(Sequential)]
    else:
        parts += body(kind)  # of a chain too, whose base has no name
    parts.append(f"Cost of a step: {cost}.")
    if fields(kind):
        parts.append(settings_table(name, algorithm, kind))
    return "\n\n".join(parts)


def paragraphs(kind: type) -> list[str]:
    text = inspect.cleandoc(kind.__doc__ or "")
    return text.partition("\n\nParameters\n---")[0].split("\n\n")


def body(kind: type[Algorithm]) -> list[str]:
    """The docstring without what it says of single settings; indented equations are code blocks as they stand."""
    return [text for text in paragraphs(kind) if not explained([f.name for f in fields(kind)], text)]


def explained(settings: Iterable[str], text: str) -> dict[str, str]:
    """What a paragraph says of settings: lines `name: what it means`, which may go on below."""
    known, found, current = list(settings), dict[str, str](), ""
    for line in text.splitlines():
        start, colon, rest = line.partition(":")
        if colon and start in known:
            current, found[start] = start, rest.strip()
        elif current:
            found[current] += f" {line.strip()}"
    return found


def settings_table(name: str, algorithm: Algorithm, kind: type[Algorithm]) -> str:
    meanings = {n: m for text in paragraphs(kind) for n, m in explained([f.name for f in fields(kind)], text).items()}
    missing = [n for n in collect_rules(algorithm) if n not in meanings]
    if missing:
        raise SystemExit(
            f"The docstring of {kind.__name__} needs a line `{missing[0]}: what it means`, after a blank line."
        )
    tables = {label: load_benchmark(b).tables.get(name) for b, label in BENCHMARKS.items()}
    given = {label: table for label, table in tables.items() if table}
    columns = ["setting", "meaning", "default", "search", *given]
    rows = [
        [
            f"`{n}`",
            meanings[n],
            shown(default),
            searched(rule.get("search")),
            *(shown(t.get(n)) for t in given.values()),
        ]
        for n, (default, rule) in collect_rules(algorithm).items()
        if n not in list_alone(algorithm)
    ]
    if any("lr" in table for table in given.values()):
        low, high = load_benchmark("pacs").lr_search
        rows.append(
            [
                "`lr`",
                "learning rate (of the protocol)",
                "",
                f"{low:g} to {high:g} times, log",
                *(shown(t.get("lr")) for t in given.values()),
            ]
        )
    lines = ["| " + " | ".join(row) + " |" for row in [columns, ["---"] * len(columns), *rows]]
    return "\n".join(lines)


def shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(shown(v) for v in value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def searched(where: Any) -> str:
    if isinstance(where, Range):
        return f"{where.low:g} to {where.high:g}{', log' if where.log else ''}"
    return shown(where)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
