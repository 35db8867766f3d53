"""Draw the pictures of the front page and the gallery: `python scripts/make_front.py [--run]`.

leaderboard.svg, and leaderboard-phone.svg for narrow screens, are drawn from the published records of WISDM: the
accuracy on each of ten people who were held out, and the interval for the next person. terminal.svg shows COMMAND and
what it printed, as terminal.txt has it. A test checks that they are current. --run runs COMMAND again, and the examples
of docs/gallery.md, which draw gallery-*.svg.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from html import escape
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from seqdg import bench, results

ROOT = Path(__file__).parents[1]
DRAWINGS, PICTURES = ROOT / "docs" / "drawings", ROOT / "docs" / "pictures"
RECORDS = ROOT / "docs" / "results" / "study" / "wisdm"
COMMAND = "seqdg bench --algorithms agg,fo-s-mldg,agg+ema --trials 3"
SHOWN = {  # of the records, with plain names
    "random-forest": "random forest",
    "hist-gradient-boosting": "boosted trees",
    "fo-s-mldg+ema": "S-MLDG + averaging",
    "coral+ema": "CORAL + averaging",
    "agg+ema": "plain training + averaging",
    "logistic": "logistic regression",
    "agg": "plain training",
    "svc": "support vector machine",
}
COLUMNS = 106  # of the terminal
LOW, HIGH = 65.0, 92.0  # of the axis, in %
FONTS = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
STYLE = f"""<style>
  text {{ font: 14px {FONTS}; fill: #1b1f24 }}
  .title {{ font-size: 19px; font-weight: 600 }} .small {{ font-size: 12.5px; fill: #57606a }}
  .sheet {{ fill: #ffffff }} .first {{ font-weight: 600 }} .grid {{ stroke: #d8dee4 }}
  .dot {{ fill: #57606a; fill-opacity: 0.42 }} .mean {{ fill: #57606a }}
  .best .dot {{ fill: #0072b2; fill-opacity: 0.5 }} .best .mean {{ fill: #0072b2 }}
  .band {{ fill: #0072b2; fill-opacity: 0.13 }}
  .end {{ stroke: #0072b2; stroke-width: 2 }} .said {{ fill: #0b5c94; font-weight: 600 }}
  @media (prefers-color-scheme: dark) {{
    .sheet {{ fill: #14171b }} text {{ fill: #e6edf3 }} .small {{ fill: #a7b1bb }}
    .grid {{ stroke: #30363d }} .dot, .mean {{ fill: #a7b1bb }}
    .best .dot, .best .mean, .band {{ fill: #56b4e9 }} .end {{ stroke: #56b4e9 }} .said {{ fill: #7cc4ef }}
  }}
</style>"""


def read_scores() -> dict[str, dict[str, float]]:
    """Return accuracies in % by algorithm and held-out person, means over seeds, the best algorithm first."""
    found: dict[str, dict[str, list[float]]] = {}
    for kind in ("momentum", "classic"):
        with closing(results.open_run(RECORDS / kind)) as run:
            for outcome in results.select_outcomes(list(run.records()), "source-val", "accuracy"):
                if outcome.algorithm in SHOWN and outcome.value is not None:
                    people = found.setdefault(outcome.algorithm, {})
                    people.setdefault(outcome.held_out, []).append(100 * outcome.value)
    scores = {name: {person: fmean(values) for person, values in people.items()} for name, people in found.items()}
    return dict(sorted(scores.items(), key=lambda item: -fmean(item[1].values())))


class Layout(NamedTuple):
    """Where the rows of the leaderboard are; on a phone the name of a model stands above its dots."""

    name: str
    width: int
    left: int
    right: int
    top: int
    row: int
    tick: int  # between two lines of the grid, in %
    above: tuple[str, ...]  # what is said above the rows
    below: tuple[str, ...]  # and below them, after how good it will be

    def find_x(self, percent: float) -> float:
        return round(self.left + (self.right - self.left) * (percent - LOW) / (HIGH - LOW), 1)


DESK = Layout(
    "leaderboard", 760, 225, 680, 78, 31, 5,
    ("Six activities from a phone in the pocket. A dot: a person whom the model did not train on. ● the mean of ten.",),
    ("WISDM: 36 people, ten of them held out in turn, ten seeds. Drawn from the published records.",),
)  # fmt: skip
PHONE = Layout(
    "leaderboard-phone", 360, 12, 290, 124, 50, 10,
    ("Six activities from a phone in the pocket. A dot: a", "person whom the model did not train on. ● the mean."),
    ("WISDM: ten of 36 people held out in turn, ten seeds.",),
)  # fmt: skip


def draw_leaderboard(layout: Layout = DESK) -> str:
    """Return the picture: a row for each model, a dot for each person, and the interval of the best."""
    scores, x = read_scores(), layout.find_x
    best, people = next(iter(scores.items()))
    counts = bench.load_benchmark("wisdm").data["counts"]
    ahead = results.predict_next_domain([v / 100 for v in people.values()], [counts[p] for p in people])
    low, high, expected = 100 * ahead.low, 100 * ahead.high, fmean(people.values())
    is_phone = layout is PHONE
    title = "Which model is best for a person it has never seen?"
    asked, answer = (
        f"How good will it be? {expected:.0f} % expected",
        f"90 % interval for the next person: {low:.0f} to {high:.0f} %",
    )
    titles = ["Which model is best for a", "person it has never seen?"] if is_phone else [title]
    said = [f"{asked};", answer.replace(" person", "")] if is_phone else [f"{asked}; {answer}"]
    bottom = layout.top + layout.row * len(scores)
    height = bottom + 46 + 20 * (len(said) + len(layout.below))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width} {height}" role="img" '
        f'aria-labelledby="{layout.name}-title">',
        f'<title id="{layout.name}-title">{title} The best of {len(scores)} models on '
        f"{len(people)} people, each held out: {SHOWN[best]}, {expected:.1f} %. {asked}; {answer}.</title>",
        STYLE,
        f'<rect class="sheet" width="{layout.width}" height="{height}"/>',
    ]
    margin = 12 if is_phone else 20
    parts += [f'<text class="title" x="{margin}" y="{30 + 24 * i}">{line}</text>' for i, line in enumerate(titles)]
    start = 28 + 24 * len(titles)
    parts += [
        f'<text class="small" x="{margin}" y="{start + 17 * i}">{line}</text>' for i, line in enumerate(layout.above)
    ]
    for tick in range(-(-round(LOW) // layout.tick) * layout.tick, round(HIGH) + 1, layout.tick):
        parts.append(f'<path class="grid" d="M{x(tick)} {layout.top - 6}V{bottom}"/>')
        parts.append(f'<text class="small" x="{x(tick)}" y="{bottom + 18}" text-anchor="middle">{tick} %</text>')
    for i, (name, by_person) in enumerate(scores.items()):
        y = layout.top + layout.row * (i + 0.5) + (8 if is_phone else -3)
        parts.append(f'<g class="{"best" if i == 0 else "rest"}">')
        if i == 0:
            parts.append(f'<rect class="band" x="{x(low)}" y="{y - 13}" width="{x(high) - x(low):.1f}" height="26"/>')
            parts += [f'<path class="end" d="M{x(end)} {y - 13}v26"/>' for end in (low, high)]
        label = ' class="first"' if i == 0 else ""
        where = (
            f'x="{layout.left}" y="{y - 17}"' if is_phone else f'x="{layout.left - 14}" y="{y + 5}" text-anchor="end"'
        )
        parts.append(f"<text{label} {where}>{SHOWN[name]}</text>")
        parts += [f'<circle class="dot" cx="{x(value)}" cy="{y}" r="4"/>' for value in by_person.values()]
        mean = fmean(by_person.values())
        parts.append(f'<circle class="mean" cx="{x(mean)}" cy="{y}" r="7.5"/>')
        parts.append(f'<text{label} x="{layout.width - margin}" y="{y + 5}" text-anchor="end">{mean:.1f} %</text></g>')
    parts += [
        f'<text class="said" x="{margin}" y="{bottom + 48 + 20 * i}">{line}</text>' for i, line in enumerate(said)
    ]
    start = bottom + 48 + 20 * len(said)
    parts += [
        f'<text class="small" x="{margin}" y="{start + 20 * i}">{line}</text>' for i, line in enumerate(layout.below)
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def run_command() -> str:
    """Run COMMAND in an empty folder; what it says, progress and notes included."""
    words = [sys.executable, "-m", *shlex.split(COMMAND)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
    return done.stdout


def run_gallery(folder: Path) -> dict[str, str]:
    """Run the examples of docs/gallery.md in an empty folder; the pictures that they draw, by file."""
    names: dict[str, object] = {"__name__": "__main__"}
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            exec(compile(block, "docs/gallery.md", "exec", dont_inherit=True), names)
    finally:
        os.chdir(before)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("gallery-*.svg"))}
    return {name: text.replace('font-family="sans-serif"', f"font-family='{FONTS}'") for name, text in drawn.items()}


def draw_terminal(printed: str) -> str:
    """Return an animated terminal: the command is typed, then its lines appear, and the picture stays."""
    lines = [
        part
        for line in printed.rstrip("\n").splitlines()
        for part in textwrap.wrap(line, COLUMNS, drop_whitespace=False, break_on_hyphens=False) or [""]
    ]
    columns = max(len(COMMAND) + 2, *map(len, lines))
    wide, step = 8.43, 19
    width, height = round(columns * wide) + 40, 62 + step * (len(lines) + 1)
    typed = 1.8  # seconds
    rows, at = [], 0.5 + typed
    for i, line in enumerate(lines):
        at += 0.7 if line.startswith("rotated-mnist:") else 0.12
        shown = f'<text class="out" style="animation-delay:{at:.2f}s" x="20" y="{78 + step * i}">{escape(line)}</text>'
        rows.append(shown)
    letters = "".join(
        f'<tspan style="animation-delay:{0.4 + typed * i / len(COMMAND):.2f}s">{escape(c)}</tspan>'
        for i, c in enumerate(COMMAND)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="terminal-title">\n<title id="terminal-title">A terminal: {escape(COMMAND)} compares three '
        "algorithms with each rotation of digits held out, and prints their table</title>\n<style>\n"
        f"  text {{ font: 14px {MONO}; fill: #e6edf3; white-space: pre }}\n"
        "  .out, tspan { animation: show 0.01s both } .prompt { fill: #7ee787 }\n"
        "  @keyframes show { from { opacity: 0 } to { opacity: 1 } }\n"
        "  @media (prefers-reduced-motion: reduce) { .out, tspan { animation: none } }\n</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>\n'
        '<circle cx="22" cy="19" r="6" fill="#ff5f57"/><circle cx="42" cy="19" r="6" fill="#febc2e"/>'
        '<circle cx="62" cy="19" r="6" fill="#28c840"/>\n'
        f'<text x="20" y="55"><tspan class="prompt" style="animation:none">$ </tspan>{letters}</text>\n'
        + "\n".join(rows)
        + "\n</svg>\n"
    )


def main() -> None:
    """Write the pictures."""
    transcript = PICTURES / "terminal.txt"
    if "--run" in sys.argv[1:]:
        transcript.write_text(run_command(), encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in run_gallery(Path(folder)).items():
                (PICTURES / name).write_text(text, encoding="utf-8")
    for layout in (DESK, PHONE):
        (DRAWINGS / f"{layout.name}.svg").write_text(draw_leaderboard(layout), encoding="utf-8")
    (PICTURES / "terminal.svg").write_text(draw_terminal(transcript.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
