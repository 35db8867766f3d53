"""The differences between a run and the paper's protocol and settings, read from its records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from seqdg.results import Record, drop_label

Table = Mapping[str, Any]

# Fields of a description that are compared, or that say nothing about the protocol. Any other is one that was added
# later, is described only where it is used, and is listed as something that the paper does not have.
_PROTOCOL = (
    "split", "validation", "test", "steps", "batch", "evaluations", "optimizer", "lr", "momentum", "weight_decay",
    "precision",
)  # fmt: skip
_NET = ("name", "hidden", "batchnorm", "pretrained", "batchnorm_policy", "weights", "dropout")
_INERT = (("order", "0"), ("recompute", "false"), ("recompute", "true"))  # of s-mldg: exact, and how it is computed


def list_departures(paper: Table, appendix: Table, sources: int, records: Sequence[Record]) -> list[str]:
    """Return a sentence for every difference.

    paper: what the paper says of this table's protocol.   appendix: its settings, by the names of our algorithms.
    sources: how many domains the paper's paths have.
    """
    single = [r for r in records if r.is_tabled]
    compare: tuple[Callable[[Table, Sequence[Record]], str | None], ...] = (
        _compare_nets, _compare_dropout, _compare_inputs, _compare_augmentation, _compare_splits, _compare_steps,
        _compare_precision, _compare_optimizers,
    )  # fmt: skip
    sentences = [sentence for each in compare if (sentence := each(paper, single))]
    return [
        *sentences,
        *_list_unknown(single),
        *_compare_settings(appendix, sources, single),
        *_list_ours(paper, single),
    ]


def join_values(values: Iterable[object]) -> str:
    """Join what a run has of one kind: `a`, `a or b`, `5 values from 0.1 to 2`."""
    texts = list(dict.fromkeys(str(v) for v in values))
    if len(texts) <= 4:
        return " or ".join(texts)
    try:
        numbers = sorted(float(t) for t in texts)
    except ValueError:
        return f"{len(texts)} values, such as {texts[0]}"
    return f"{len(texts)} values from {numbers[0]:.4g} to {numbers[-1]:.4g}"


def read_values(records: Sequence[Record], part: str, name: str) -> list[Any]:
    """Return the distinct values of a field of the `net` or `protocol` of these records, where they have it."""
    values = (r.description[part].get(name) for r in records)
    return list(dict.fromkeys(tuple(v) if isinstance(v, list) else v for v in values if v is not None))


def _compare_nets(paper: Table, records: Sequence[Record]) -> str | None:
    nets = dict.fromkeys(describe_net(r.description["net"]) for r in records)
    wanted = describe_net({**paper, "name": paper["net"], "weights": "yes" if paper["pretrained"] else None})
    others = [text for text in nets if text != wanted]
    return f"Net: {wanted} in the paper, {' and '.join(others)} here." if others else None


def describe_net(net: Table) -> str:
    """Describe a net: `mlp 2000 with BatchNorm`, `ResNet-18 from ImageNet weights`."""
    titles = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "resnet50-v1": "ResNet-50 v1", "alexnet": "AlexNet"}
    name = str(titles.get(net["name"], net["name"]))
    if net["name"] != "mlp":
        return name + (" from ImageNet weights" if net.get("weights") else "")
    layers = "-".join(str(width) for width in net.get("hidden", ()))
    return f"{name} {layers}".strip() + (" with BatchNorm" if net.get("batchnorm") else "")


def _compare_dropout(paper: Table, records: Sequence[Record]) -> str | None:
    wanted = float(paper.get("dropout", 0.0))
    here = list(dict.fromkeys(float(r.description["net"].get("dropout", 0.0)) for r in records))
    if here == [wanted]:
        return None
    return f"Dropout: {wanted:g} in the paper, {join_values(f'{v:g}' for v in here)} here."


def _compare_inputs(paper: Table, records: Sequence[Record]) -> str | None:
    on_features = any(r.description["net"]["name"] == "mlp" for r in records)
    if paper["kind"] == "images":
        return f"Inputs: {paper['inputs']} in the paper, precomputed features here." if on_features else None
    return f"Inputs: {paper['inputs']} in the paper; that this run's are the same cannot be seen from its records."


def _compare_augmentation(paper: Table, records: Sequence[Record]) -> str | None:
    recipes = [name for name in dict.fromkeys(r.description.get("augment", "") for r in records) if name]
    if not recipes:
        return None
    return f"Augmentation: the paper mentions none; here the recipe {join_values(repr(name) for name in recipes)}."


def _compare_splits(paper: Table, records: Sequence[Record]) -> str | None:
    here = sorted({describe_split(r.description["protocol"]) for r in records})
    if here == [paper["split"]]:
        return None
    return f"Split: {paper['split']} in the paper; here {' and '.join(here)}."


def describe_split(protocol: Table) -> str:
    """Describe a split: `random, 70 % to train on and 30 % to test on`."""
    if protocol.get("split") == "official":
        return "official" if protocol.get("test", "whole") == "whole" else "official, tested on its validation rows"
    share = 100 * protocol.get("validation", 0)
    tested = "the whole held-out domain" if protocol.get("test") == "whole" else f"{share:.0f} %"
    return f"random, {100 - share:.0f} % to train on and {tested} to test on"


def _compare_steps(paper: Table, records: Sequence[Record]) -> str | None:
    here = read_values(records, "protocol", "steps")
    if "steps" not in paper or here == [paper["steps"]] or not here:
        return None
    return f"Steps: {paper['steps']} in the paper, {join_values(here)} here."


def _compare_precision(paper: Table, records: Sequence[Record]) -> str | None:
    here = [p for p in read_values(records, "protocol", "precision") if p != "float32"]
    return f"Precision: the paper names none, presumably float32; here {join_values(here)}." if here else None


def _compare_optimizers(paper: Table, records: Sequence[Record]) -> str | None:
    """Compare the optimizers. With `auto` an algorithm has its own: SGD with momentum, and plain SGD for FFO-S-MLDG."""
    parts = []
    others = [name for name in read_values(records, "protocol", "optimizer") if name not in ("auto", "momentum")]
    parts += [join_values(others)] if others else []
    for name, wanted in (("momentum", paper["momentum"]), ("weight_decay", paper["weight_decay"])):
        here = read_values(records, "protocol", name)
        if here and here != [wanted]:
            parts.append(f"{name.replace('_', ' ')} {join_values(here)}")
    rule = f"SGD with momentum {paper['momentum']} and weight decay {paper['weight_decay']}"
    return f"Optimizer: {rule} in the paper; here {', '.join(parts)}." if parts else None


def _list_unknown(records: Sequence[Record]) -> list[str]:
    """Say what the run has in its protocol or net that the paper does not mention."""
    sentences = []
    for part, known in (("protocol", _PROTOCOL), ("net", _NET)):
        for name in dict.fromkeys(key for r in records for key in r.description[part] if key not in known):
            values = join_values(r.description[part].get(name, "none") for r in records)
            sentences.append(f"{name.replace('_', ' ').capitalize()}: the paper mentions none; here {values}.")
    return sentences


def _compare_settings(appendix: Table, sources: int, records: Sequence[Record]) -> list[str]:
    """Compare the settings of every algorithm with those of appendix C, position by position of the path."""
    departing, same, open_ = [], [], []
    for name in dict.fromkeys(r.algorithm for r in records):
        tried = [_read_settings(r, sources) for r in records if r.algorithm == name]
        names = dict.fromkeys(key for s in tried for key in s if (key, s[key]) not in _INERT)
        here = {key: join_values(s.get(key, "as before") for s in tried) for key in names}
        if drop_label(name) not in appendix:
            open_.append(f"{name} {', '.join(f'{key} {value}' for key, value in here.items())}")
            continue
        listed = {key: _expand(name, key, value, sources) for key, value in appendix[drop_label(name)].items()}
        parts = [
            f"{key} {here.get(key, '-')} here, {value} there" for key, value in listed.items() if here.get(key) != value
        ]
        parts += [f"{key} {value} here, nothing there" for key, value in here.items() if key not in listed]
        if parts:
            departing.append(f"Settings of {name} that are not those of appendix C: {'; '.join(parts)}.")
        else:
            same.append(name)
    departing += [f"Settings as in appendix C: {', '.join(same)}."] if same else []
    return departing + ([f"Settings that appendix C does not give: {'; '.join(open_)}."] if open_ else [])


def _read_settings(record: Record, sources: int) -> dict[str, str]:
    """Return the settings and the learning rate of a record as they are compared."""
    about = record.description
    texts = {**about.get("settings", {}), **({"lr": about["protocol"]["lr"]} if "lr" in about["protocol"] else {})}
    return {key: _expand(record.algorithm, key, value, sources) for key, value in texts.items()}


def _expand(algorithm: str, name: str, value: Any, sources: int) -> str:
    """Return the value of a setting in one form: alpha and beta position by position, unless all are the same.

    alpha has a value for every look-ahead, beta for every domain; a short list of betas is of the last ones. S-MLDG's
    first domain has no beta.
    """
    if name not in ("alpha", "beta"):
        return (
            f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else _format_text(str(value))
        )
    algorithm = drop_label(algorithm)
    whole = isinstance(value, float | int) or (isinstance(value, str) and "," not in value)
    parts = [value] if whole else value.split(",") if isinstance(value, str) else list(value)
    numbers = [float(part) for part in parts if str(part).strip()]
    chained = algorithm in ("s-mldg", "fo-s-mldg")
    if name == "alpha":
        count = sources - 1 if chained else sources if algorithm == "ffo-s-mldg" else 1
        numbers = (numbers * count)[:count] if whole else [*numbers, *[numbers[-1]] * (count - len(numbers))]
    else:
        count = sources if chained or algorithm == "ffo-s-mldg" else 1
        numbers = numbers * count if whole else [*[1.0] * (count - len(numbers)), *numbers]
        numbers = [1.0, *numbers[1:]] if chained else numbers
    return f"{numbers[0]:g}" if len(set(numbers)) == 1 else ", ".join(f"{n:g}" for n in numbers)


def _format_text(text: str) -> str:
    try:
        return f"{float(text):g}"
    except ValueError:
        return text.lower()


def _list_ours(paper: Table, records: Sequence[Record]) -> list[str]:
    """Say what the run chose where the paper says nothing."""
    parts = []
    if "steps" not in paper and (steps := read_values(records, "protocol", "steps")):
        parts.append(f"{join_values(steps)} steps")
    if batch := read_values(records, "protocol", "batch"):
        parts.append(f"minibatches of {join_values(batch)} per domain")
    if evaluations := read_values(records, "protocol", "evaluations"):
        parts.append(f"{join_values(evaluations)} evaluations")
    shares = {r.description["protocol"].get("validation") for r in records
              if r.description["protocol"].get("split") == "random"}  # fmt: skip
    if shares - {None}:
        parts.append(
            f"{join_values(f'{100 * s:.0f} %' for s in sorted(shares - {None}))} of each source to validate on"
        )
    if sizes := [s for s in dict.fromkeys(r.description.get("size", 0) for r in records) if s]:
        parts.append(f"images of {join_values(sizes)} pixels")
    if policies := [p for p in read_values(records, "net", "batchnorm_policy") if p != "none"]:
        parts.append(f"BatchNorm {join_values(policies)}")
    return [f"Not given in the paper, chosen here: {', '.join(parts)}."] if parts else []
