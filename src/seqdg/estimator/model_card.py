"""A model card: what a model was trained on, how it was chosen, what to expect of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqdg.results import CRITERIA, find_unit

Text = Mapping[str, Any]


def render_card(text: Text) -> str:
    """Render the content of model.json as Markdown."""
    facts = text["facts"]
    parts = [
        f"# A model trained by {text['algorithm']}",
        _describe_purpose(text),
        "## What it was trained on\n\n" + _describe_data(text),
        "## How it was trained\n\n" + _describe_training(text),
        "## How it was chosen, and what to expect\n\n" + _describe_expectation(facts),
    ]
    if facts["notes"]:
        parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in facts["notes"]))
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    parts.append(f"## Made by\n\n{versions}; weights {text['weights_sha256'][:16]}.")
    return "\n\n".join(parts) + "\n"


def _describe_purpose(text: Text) -> str:
    values = [str(c) for c in text["classes"]["values"]]
    if not values:
        label = f"'{text['facts']['label']}'" if text["facts"].get("label") else "a number"
        return _say_together(text, f"It predicts {label} from {_describe_input(text['input'])}.")
    names = ", ".join(values[:20]) + (f" and {len(values) - 20} more" if len(values) > 20 else "")
    return _say_together(text, f"It tells {len(values)} classes apart ({names}) from {_describe_input(text['input'])}.")


def _say_together(text: Text, purpose: str) -> str:
    together = text["facts"].get("together")
    if not together:
        return purpose
    return (
        f"{purpose} It is transductive: it predicts {together} rows of one domain at once, so give it the rows of one "
        "domain together."
    )


def _describe_input(table: Text) -> str:
    if table["kind"] == "image":
        return f"images of {table['channels']} channels, resized to {table['size']} x {table['size']}"
    if table["kind"] == "array":
        return f"arrays of shape {table['shape']}"
    words, dates = [name for name, _ in table["vocabulary"]], table.get("dates", {})
    numbers = len(table["columns"]) - len(words) - len(dates)
    return (
        f"{numbers} columns of numbers" + (f", {len(dates)} of dates" if dates else "") + f" and {len(words)} of words"
    )


def _describe_data(text: Text) -> str:
    domains = text["facts"]["domains"]
    classes = [str(c) for c in text["classes"]["values"]]
    counted = classes if len(classes) <= 12 else []
    counted = counted or ([] if classes else ["mean", "deviation"])
    rows = [["domain", "rows", *counted], ["---"] * (2 + len(counted))]
    for name, d in domains.items():
        values = [str(d["classes"][c]) for c in counted] if classes else [f"{d[c]:.4g}" for c in counted]
        rows.append([name, str(d["rows"]), *values])
    lines = [_join_cells(row) for row in rows]
    if text["facts"].get("data"):
        lines = [f"From `{text['facts']['data']}`.", "", *lines]
    if text["input"]["kind"] == "table" and text["input"]["named"]:
        decided = text["facts"].get("columns", {})
        names = [f"{name} ({decided[name]})" if name in decided else name for name in text["input"]["columns"]]
        lines += ["", f"Columns: {', '.join(names)}."]
    return "\n".join(lines)


def _describe_training(text: Text) -> str:
    facts = text["facts"]
    p = facts["parameters"]
    settings = ", ".join(f"{k} = {v}" for k, v in p["settings"].items()) or "no settings"
    lines = [f"{text['algorithm']} ({settings}) {_describe_steps(text)}"]
    if text.get("temperature", 1) != 1:
        lines.append(
            f"Probabilities are calibrated: logits are divided by the temperature {text['temperature']:.3f}, which "
            "fits rows of the same domains that were not trained on."
        )
    if "loss" in p and "learner" not in text:
        lines.append(f"The loss is {p['loss']}, of numbers brought to mean 0 and deviation 1.")
    if p.get("class_weight"):
        lines.append(f"Class weights: {p['class_weight']}.")
    if facts["validation"]:
        lines += [
            "",
            "On rows of the same domains that were not trained on:",
            "",
            *draw_metric_table(facts["validation"]),
        ]
    return "\n".join(lines)


def _describe_steps(text: Text) -> str:
    p = text["facts"]["parameters"]
    if "learner" in text:
        return f"fitted once, with no net; seed {p['random_state']}."
    net = text["module"] if text["net"] is None else text["net"]["name"]
    hidden = f" of hidden widths {p['hidden']}" if net == "mlp" else ""
    members = text["members"]
    what = f"an ensemble of {members} nets" if members > 1 else "a net"
    return (
        f"on {what} ({net}{hidden}): {p['steps']} steps of {p['batch']} rows per domain, optimizer {p['optimizer']}, "
        f"learning rate {p['lr']}, seed {p['random_state']}; the weights are those after {text['facts']['step']} steps."
    )


def _describe_expectation(facts: Text) -> str:
    estimate = facts.get("estimate")
    if not estimate:
        return "No estimate was made for a domain that it has never seen. `seqdg.compare` and `seqdg fit` make one."
    lines = [
        *filter(None, (estimate["sentence"], estimate["drivers"])),
        "",
        *estimate["how"],
        "",
        "With each domain held out in turn:",
        "",
    ]
    lines += draw_metric_table(estimate["held_out"])
    return "\n".join([*lines, "", *estimate["warnings"]]).rstrip()


def draw_metric_table(by_domain: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Draw a Markdown table: a row per domain, a column per criterion."""
    criteria = list(next(iter(by_domain.values())))
    rows = [["domain", *(c.replace("_", " ") for c in criteria)], ["---"] * (1 + len(criteria))]
    digits = {c: find_unit(c, [m[c] for m in by_domain.values()]).digits for c in criteria if CRITERIA[c].has_size}
    rows += [[d, *(_format_number(m[c], digits.get(c, 3)) for c in criteria)] for d, m in by_domain.items()]
    return [_join_cells(row) for row in rows]


def _format_number(value: float | None, digits: int) -> str:
    return "-" if value is None or value != value else f"{value:.{digits}f}"


def _join_cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
