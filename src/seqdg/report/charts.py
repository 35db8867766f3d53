"""Charts by Vega-Altair: in a page, in a notebook, and as SVG, PDF and PNG files without a browser; and the figures of
every report.

A chart is drawn in colors by role, `var(--c0)`, so that it has the page's light and dark ones there; in files and
notebooks they are the light ones.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from statistics import fmean
from typing import Any

import altair as alt

from seqdg.base import UsageError, make_file_name
from seqdg.report.sheet import Sheet
from seqdg.results import AVERAGE, TOGETHER, WORST, Outcome, make_directory, mean_and_error

FILES = 32  # that vl-convert and this program keep open
MISSING = "Figures need vl-convert-python: pip install 'seqdg[figures]'."
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first comes with vl-convert: files are alike everywhere
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
WIDTH, HEIGHT, ROW, CLOUD = 250, 170, 22, 200  # pixels, without axes
FADED = 0.2  # opacity of what is not followed

# Colors by role, safe for color-blind readers; shapes differ where colors repeat.
LIGHT = {
    "paper": "#ffffff", "text": "#1b1f24", "muted": "#57606a", "rule": "#8c959f", "grid": "#e4e8ec",
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#2a9387", "c3": "#a3318d", "c4": "#5c1f1f", "c5": "#6b5cff",
    "c6": "#56606b", "c7": "#a67c00", "c8": "#d81b60", "c9": "#4d7c0f",
}  # fmt: skip
DARK = {
    "paper": "#14171b", "text": "#e6e9ed", "muted": "#a3acb7", "rule": "#77818c", "grid": "#2b3138",
    "c0": "#5bb4ee", "c1": "#f2803a", "c2": "#2f9c86", "c3": "#f0a6d6", "c4": "#ffe79a", "c5": "#7f73ff",
    "c6": "#8b97a4", "c7": "#a67c2c", "c8": "#ff6f91", "c9": "#a8cf45",
}  # fmt: skip
HUES = tuple(f"c{i}" for i in range(10))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 4))
TEXT, MUTED, RULE, GRID, PAPER = (f"var(--{role})" for role in ("text", "muted", "rule", "grid", "paper"))


@dataclass(frozen=True)
class Style:
    """The look of one algorithm, class or layer in every picture; shapes and dashes are Vega's."""

    color: str
    shape: str = SHAPES[0]
    dash: tuple[int, ...] = DASHES[0]


Looks = Mapping[str, Style]
Values = dict[str, Any]


def make_styles(names: Iterable[str]) -> dict[str, Style]:
    """Return up to fifty different styles: ten colors, and five shapes that change where the colors repeat."""
    looks = {}
    for i, name in enumerate(dict.fromkeys(names)):
        color, other = HUES[i % len(HUES)], i + i // len(HUES)
        looks[name] = Style(color, SHAPES[other % len(SHAPES)], DASHES[other % len(DASHES)])
    return looks


def pick_styles(looks: Looks, names: Iterable[str]) -> dict[str, Style]:
    """Return the styles of these names, in the order of all."""
    wanted = set(names)
    return {name: style for name, style in looks.items() if name in wanted}


# Panels --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """An Altair chart and its data. Panels of a kind share the chart, so that a page has it once."""

    chart: alt.LayerChart  # without data; of the signals `follow`, a name, and `hidden`, a list of names
    rows: Sequence[Values]  # with `look`, whose style a mark has
    heading: str
    description: str  # to readers who cannot see it
    is_zoomed: bool = False  # whether its axes can be zoomed
    has_word_above: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels with what they share. In a notebook it shows itself.

    looks: of all that its panels show.   small: whether its panels are.
    """

    name: str  # of its file
    title: str
    panels: Sequence[Panel]
    caption: str = ""
    looks: Looks = field(default_factory=dict)
    has_legend: bool = False
    small: bool = False

    def draw(self) -> alt.ConcatChart:
        """Return the Altair chart: panels side by side, and a legend."""
        raised = any(panel.has_word_above for panel in self.panels)
        charts = []
        for panel in self.panels:
            chart = panel.chart.copy()
            chart.data, chart.description = {"values": panel.rows}, panel.description
            if panel.heading:  # those of neighbours stand in a line
                chart.title = alt.Title(panel.heading, offset=25 if raised and not panel.has_word_above else 10)
            charts.append(chart)
        whole = alt.concat(*charts, columns=4 if self.small else 3, spacing=28)
        if any(panel.is_zoomed for panel in self.panels):
            whole = whole.resolve_scale(shape="independent")  # the legend has lines, not the dots of other panels
        follow = alt.param("follow", value="", bind=alt.binding_select(options=["", *self.looks]))
        whole = whole.add_params(follow, alt.param("hidden", value=[]))
        return whole.properties(description=self.title, padding=14).configure(**_configure(FONT, self.has_legend))

    def to_json(self) -> str:
        """Return the chart in Vega-Lite, with the light colors in place of those by role."""
        return re.sub(r"var\(--(\w+)\)", lambda role: LIGHT[role[1]], json.dumps(self.draw().to_dict()))

    def _repr_mimebundle_(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> Any:
        return alt.ConcatChart.from_json(self.to_json())._repr_mimebundle_(include, exclude)


def _configure(font: str, has_legend: bool) -> dict[str, Any]:
    """Return what all charts share: fonts, and the colors of axes and words."""
    axis = {
        "labelFontSize": 11, "titleFontSize": 11, "labelColor": MUTED, "titleColor": MUTED, "titleFontWeight": "normal",
        "domain": False, "ticks": False, "gridColor": GRID, "labelPadding": 5, "labelLimit": 140, "titleLimit": WIDTH,
        "labelFlush": False,
    }  # fmt: skip
    legend = {
        "labelFontSize": 12, "labelColor": TEXT, "title": None, "orient": "bottom", "symbolSize": 90, "columns": 5,
        "labelLimit": 180, "columnPadding": 16, "disable": not has_legend,
    }  # fmt: skip
    title = {"anchor": "start", "frame": "group", "fontSize": 13, "color": TEXT, "limit": WIDTH + 40}
    return {
        "font": font, "background": PAPER, "view": {"stroke": None}, "axis": axis, "legend": legend, "title": title,
        "text": {"color": MUTED, "fontSize": 11},
    }  # fmt: skip


def draw_rows(
    rows: Sequence[Values],
    label: str,
    looks: Looks,
    heading: str = "",
    zero: bool = False,
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> Panel:
    """Draw a name, a dot and its error bar in each row, as `make_row` makes them.

    zero: a rule at 0, always in view.   limits: the least and the largest value in view; None: those of the rows.
    """
    values = _clean(rows)
    known, bars = (any(row[name] is not None for row in values) for name in ("value", "low"))
    chart = _chart_rows(label, tuple(looks.items()), zero, log, known, bars, limits)
    texts = [f"{r['label']} {r['note'] or 'no value' if r['value'] is None else _format(r['value'])}" for r in rows]
    return Panel(chart, values, heading, f"{heading + ': ' if heading else ''}{label}. {', '.join(texts)}.")


def make_row(
    label: str, value: float | None, low: float | None = None, high: float | None = None, note: str = "", look: str = ""
) -> Values:
    """Make a row: a value and its error bar. note: stands at the right, or in place of a missing value. look: whose
    style it has; the label's where empty."""
    return {"label": label, "value": value, "low": low, "high": high, "note": note, "look": look or label}


def draw_lines(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x: str,
    y: str,
    looks: Looks,
    heading: str,
    upright: tuple[float, str] | None = None,
    level: tuple[float, str] | None = None,
    limits: tuple[float, float] | None = None,
) -> Panel:
    """Draw curves, broken where a value is not finite.

    curves: the values on both axes by name.   upright, level: a marked position on the x or y axis, with a word.
    """
    rows = []
    for name, (xs, ys) in curves.items():
        finite = [False, *map(math.isfinite, ys), False]
        rows += [
            {"i": i, "look": name, "x": a, "y": b, "alone": not (finite[i] or finite[i + 2])}
            for i, (a, b) in enumerate(zip(xs, ys, strict=True))
        ]
    alone = any(row["alone"] for row in rows)
    chart = _chart_lines(x, y, tuple(looks.items()), upright, level, limits, alone)
    ends = [(name, ys[-1]) for name, (_, ys) in curves.items() if len(ys) and math.isfinite(ys[-1])]
    last = ", ".join(f"{name} ends at {_format(end)}" for name, end in ends)
    return Panel(chart, _clean(rows), heading, f"{heading}: {y} over {x}. {last}.", True, upright is not None)


def draw_cloud(
    points: Sequence[Sequence[float]], groups: Sequence[str], looks: Looks, heading: str, below: str = ""
) -> Panel:
    """Draw points without axes, as t-SNE's axes mean nothing. groups: the class of each."""
    rows = [{"look": group, "x": x, "y": y} for (x, y), group in zip(points, groups, strict=True)]
    description = f"{heading}: {len(points)} points in {len(set(groups))} classes. {below}".strip()
    return Panel(_chart_cloud(below, tuple(looks.items())), _clean(rows), heading, description)


def draw_points(rows: Sequence[Values], x: str, y: str, looks: Looks, heading: str, log: bool = False) -> Panel:
    """Draw named points with error bars: of each `name`, `x`, `y`, `low`, `high` and `look`. log: of the x axis."""
    bars = any(row["low"] is not None for row in rows)
    words = ", ".join(f"{row['name']} {_format(row['x'])} and {_format(row['y'])}" for row in rows)
    chart = _chart_points(x, y, tuple(looks.items()), log, bars)
    return Panel(chart, _clean(rows), heading, f"{heading}: {y} against {x}. {words}.")


def _format(value: float) -> str:
    """Return the number with as many digits as a reader needs."""
    return f"{value:.4g}"


def _clean(rows: Iterable[Values]) -> list[Values]:
    """Return the rows without what JSON cannot hold and digits that nobody sees."""
    return [{name: _round(value) for name, value in row.items()} for row in rows]


def _round(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


# Their charts, drawn once each ---------------------------------------------------------------------------------------

Styles = tuple[tuple[str, Style], ...]
OPACITY = alt.OpacityValue(FADED, condition={"test": "follow === '' || datum.look === follow", "value": 1})


def _start() -> alt.Chart:
    """Return a chart of the data of its panel, without what is hidden."""
    return alt.Chart().transform_filter("indexof(hidden, datum.look) < 0")


def _encode_look(channel: Any, looks: Styles, **legend: Any) -> Any:
    """Return the encoding of a name by its color, shape or dash. legend: what differs from that of other charts."""
    values = {
        alt.Color: [f"var(--{style.color})" for _, style in looks],
        alt.Shape: [style.shape for _, style in looks],
        alt.StrokeDash: [list(style.dash) for _, style in looks],
    }[channel]
    scale = alt.Scale(domain=[name for name, _ in looks], range=values)
    return channel("look:N", scale=scale, **legend)


def _encode_number(channel: Any, column: str, title: str, **scale: Any) -> Any:
    """Return the encoding of a number on an axis; what is in view is the range of the data and a margin."""
    settings = {"nice": False, "padding": 9, **({} if "type" in scale else {"zero": False}), **scale}
    return channel(f"{column}:Q", title=title, scale=alt.Scale(**settings), axis=alt.Axis(tickCount=5, grid=True))


def _list_tooltips(**fields: str) -> list[alt.Tooltip]:
    """Return tooltips: the word that stands before the value of each field."""
    kinds: dict[str, Any] = {
        f: {"type": "nominal"} if f in ("look", "label", "name") else {"format": ".4g"} for f in fields
    }
    return [alt.Tooltip(f"{field}:Q", title=word, **kinds[field]) for field, word in fields.items()]


def _draw_rule(axis: str, value: float, word: str = "") -> list[alt.Chart]:
    """Return a dashed rule across the panel. Its word stands outside, where it covers nothing."""
    position = {axis: (alt.XDatum if axis == "x" else alt.YDatum)(value, type="quantitative")}
    nothing = alt.Chart(alt.Data(values=[{}]))
    rule = nothing.mark_rule(strokeDash=[4, 3], color=RULE).encode(**position)
    beside: dict[str, Any] = (
        {"baseline": "bottom", "y": -3} if axis == "x" else {"align": "left", "x": "width", "dx": 4}
    )
    return [rule, nothing.mark_text(text=word, clip=False, **beside).encode(**position)] if word else [rule]


@cache
def _chart_rows(
    label: str, looks: Styles, zero: bool, log: bool, known: bool, bars: bool, limits: tuple[float, float] | None
) -> alt.LayerChart:
    axis = alt.Axis(grid=False, labelColor=TEXT, labelFontSize=12)
    base = _start().encode(
        y=alt.Y("label:N", sort=None, title=None, axis=axis), color=_encode_look(alt.Color, looks, legend=None),
        opacity=OPACITY, tooltip=_list_tooltips(label="name", value=label, low="from", high="to"),
    )  # fmt: skip
    words = base.encode(color=alt.ColorValue(MUTED), text="note:N")
    layers = [words.transform_filter("!isValid(datum.value)").mark_text(align="left", x=6)]
    if known:
        scale: dict[str, Any] = {"type": "log"} if log else {}
        scale |= {"domain": list(limits)} if limits is not None else {}
        low, value = (_encode_number(alt.X, column, label, **scale) for column in ("low", "value"))
        there = base.transform_filter("isValid(datum.value)")
        bar = there.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(x=low, x2="high:Q")
        layers += [
            *(_draw_rule("x", 0.0) if zero else []),
            *([bar] if bars else []),
            there.mark_point(filled=True, size=75).encode(x=value, shape=_encode_look(alt.Shape, looks, legend=None)),
            words.transform_filter("isValid(datum.value)").mark_text(align="left", x="width", dx=5),
        ]
    return alt.layer(*layers).properties(width=WIDTH, height={"step": ROW})


@cache
def _chart_lines(
    x: str,
    y: str,
    looks: Styles,
    upright: tuple[float, str] | None,
    level: tuple[float, str] | None,
    limits: tuple[float, float] | None,
    alone: bool,
) -> alt.LayerChart:
    scale = {} if limits is None else {"domain": list(limits), "padding": 0}
    base = _start().encode(
        x=_encode_number(alt.X, "x", x, padding=0), y=_encode_number(alt.Y, "y", y, **scale),
        color=_encode_look(alt.Color, looks, legend=None), order="i:Q",
    )  # fmt: skip
    legend = alt.Legend(symbolType="stroke", symbolSize=400, symbolStrokeWidth=2)
    color, dash = (_encode_look(channel, looks, legend=legend) for channel in (alt.Color, alt.StrokeDash))
    dots = base.transform_filter("datum.alone").mark_point(filled=True, size=20).encode(opacity=OPACITY)
    return alt.layer(
        *(_draw_rule("y", *level) if level else []),
        *(_draw_rule("x", *upright) if upright else []),
        *([dots] if alone else []),
        base.mark_line(strokeWidth=1.8, clip=True).encode(color=color, strokeDash=dash, opacity=OPACITY),
        # Not to be seen: they say what is under the pointer.
        base.mark_point(size=120, opacity=0, clip=True).encode(tooltip=_list_tooltips(look="name", x=x, y=y)),
    ).properties(width=WIDTH, height=HEIGHT)


@cache
def _chart_cloud(below: str, looks: Styles) -> alt.LayerChart:
    x, y = (
        channel(f"{column}:Q", scale=alt.Scale(zero=False, nice=False, padding=6),
                axis=alt.Axis(title=title, labels=False, grid=False))
        for channel, column, title in ((alt.X, "x", below or None), (alt.Y, "y", None))
    )  # fmt: skip
    cloud = _start().mark_point(filled=True, size=14).encode(
        x=x, y=y, color=_encode_look(alt.Color, looks), shape=_encode_look(alt.Shape, looks), opacity=OPACITY,
        tooltip=_list_tooltips(look="class"),
    )  # fmt: skip
    return alt.layer(cloud).properties(width=CLOUD, height=CLOUD, view=alt.ViewBackground(stroke=GRID))


@cache
def _chart_points(x: str, y: str, looks: Styles, log: bool, bars: bool) -> alt.LayerChart:
    base = _start().encode(
        x=_encode_number(alt.X, "x", x, **({"type": "log"} if log else {})), color=_encode_look(alt.Color, looks),
        opacity=OPACITY, tooltip=_list_tooltips(name="name", x=x, y=y, low="from", high="to"),
    )  # fmt: skip
    low, middle = (_encode_number(alt.Y, column, y) for column in ("low", "y"))
    bar = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.6).encode(y=low, y2="high:Q")
    dots = base.mark_point(filled=True, size=90).encode(y=middle, shape=_encode_look(alt.Shape, looks))
    return alt.layer(*([bar] if bars else []), dots).properties(width=WIDTH, height=HEIGHT + 40)


# Files and pages -----------------------------------------------------------------------------------------------------


def can_draw() -> bool:
    """Say whether the library that draws without a browser is installed."""
    return find_spec("vl_convert") is not None


def _load_converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise UsageError(MISSING) from None
    if 0 <= (files := getrlimit(RLIMIT_NOFILE)[0]) < FILES:  # vl-convert panics, which is no error of Python's
        raise UsageError(f"Figures need {FILES} open files, and {files} are allowed: raise that by `ulimit -n 1024`.")
    return vl_convert


@cache
def load_vega() -> str:
    """Return the script that defines `vegaEmbed` in a page, as vl-convert ships it."""
    return f"(() => {{{_load_converter().javascript_bundle('window.vegaEmbed = vegaEmbed;')}}})();"


def write_figures(figures: Sequence[Figure], folder: Path, kinds: Sequence[str] = ("svg", "pdf", "png")) -> list[Path]:
    """Write each figure as NAME.svg, NAME.pdf and NAME.png, and return the paths."""
    _load_converter()
    make_directory(folder, "--figures")
    paths = []
    for figure in figures:
        for kind in kinds:
            paths.append(folder / name_file(figure, kind))
            paths[-1].write_bytes(render_figure(figure, kind))
    return paths


def name_file(figure: Figure, kind: str = "svg") -> str:
    return f"{make_file_name(figure.name, '-_.', '-')}.{kind}"


def render_figure(figure: Figure, kind: str = "svg") -> bytes:
    """Return the contents of an svg, pdf or png file."""
    converter, spec = _load_converter(), figure.to_json()
    if kind == "svg":
        numbers: dict[str, str] = {}  # Vega goes on counting from file to file; the same figure gives the same file
        number = lambda part: part[1] + numbers.setdefault(part[2], f"part{len(numbers)}")  # noqa: E731
        svg = re.sub(r'(id="|url\(#|role-(?:mark|scope) )(clip\d+|view_\w+)', number, converter.vegalite_to_svg(spec))
        return f"{svg}\n".encode()
    return bytes(converter.vegalite_to_pdf(spec) if kind == "pdf" else converter.vegalite_to_png(spec, scale=2))


def compile_for_page(panel: Panel) -> dict[str, Any]:
    """Return the chart of a panel for the page, as Vega, without its rows.

    Its colors are those of the page; its signals `follow` (a name, or nothing) and `hidden` (a list of names) are set
    by the page, as its width is.
    """
    bare = panel.chart.copy()
    bare.data = alt.NamedData("rows")
    chart = bare.to_dict(validate=False)
    signals: list[dict[str, Any]] = [{"name": "follow", "value": ""}, {"name": "hidden", "value": []}]
    if panel.is_zoomed:
        zoom = {"type": "interval", "zoom": "wheel![event.ctrlKey]"}
        line = next(layer for layer in chart["layer"] if layer["mark"]["type"] == "line")
        line["params"] = [{"name": "zoom", "select": zoom, "bind": "scales"}]
        line["encoding"]["color"]["legend"] = line["encoding"]["strokeDash"]["legend"] = None  # the page has its own
    chart |= {
        "params": signals, "autosize": {"type": "fit-x", "contains": "padding"}, "datasets": {"rows": []},
        "description": "", "config": {**_configure(PAGE_FONT, False), "background": None},
    }  # fmt: skip
    return dict(_load_converter().vegalite_to_vega(chart))


# The figures of every report -----------------------------------------------------------------------------------------


def draw_domains(sheet: Sheet, looks: Looks) -> Figure:
    """Draw a panel for each held-out domain and the average: a dot and its standard error for each algorithm, the best
    on average first. Panels share their scale."""
    names, looks = _sort_by_average(sheet), pick_styles(looks, sheet.columns)
    drawn: dict[str, list[Values]] = {}
    for domain in [r for r in sheet.rows if r not in (WORST, TOGETHER)]:
        drawn[domain] = []
        for name in names:
            cell, text = sheet.cell(domain, name), sheet.value(domain, name)
            value, error = (cell.mean, cell.stderr) if cell else (None, None)
            missing = {"diverged": "diverged", "-": "no value" if cell else "not run"}.get(text, "")
            drawn[domain].append(make_row(name, value, *_find_ends(value, error), missing))
    ends = [row[end] for rows in drawn.values() for row in rows for end in ("value", "low", "high")]
    known = [end for end in ends if end is not None and math.isfinite(end)]
    limits = (min(known), max(known)) if known and min(known) < max(known) else None
    held_out = sheet.row_key == "held_out"
    panels = []
    for domain, rows in drawn.items():
        heading = f"Held out: {domain}" if held_out and domain != AVERAGE else domain.capitalize()
        panels.append(draw_rows(rows, sheet.find_unit(domain).title, looks, heading, limits=limits))
    several = any(c.stderr is not None for c in sheet.cells)
    bars = "Bars are one standard error." if several else "One trial each, so there are no error bars."
    what = f"{sheet.unit.title} on the held-out domain." if held_out else "Averages over domains."
    title = f"By {sheet.row_title.replace('held out', 'held-out domain')}"
    order = "The best on average comes first; all panels have the same scale."
    return Figure("domains", title, panels, f"{what} {bars} {order}", looks)


def _sort_by_average(sheet: Sheet) -> list[str]:
    """Return the algorithms, the best on average first and those without an average last."""
    sign = -1 if sheet.unit.higher_is_better else 1
    averages = {name: cell.mean if (cell := sheet.cell(AVERAGE, name)) else None for name in sheet.columns}
    ranks = {n: math.inf if v is None or not math.isfinite(v) else sign * v for n, v in averages.items()}
    return sorted(sheet.columns, key=ranks.__getitem__)


def _find_ends(value: float | None, error: float | None) -> tuple[float | None, float | None]:
    return (None, None) if value is None or error is None else (value - error, value + error)


def draw_differences(sheet: Sheet, looks: Looks) -> Figure | None:
    """Draw the mean paired differences from the baseline with their 95 % intervals."""
    rows = []
    for x in sheet.paired:
        note = x.verdict.removesuffix(f" than {x.baseline}") if x.distinguishable else "not distinguishable"
        rows.append(make_row(x.algorithm, x.difference, x.low, x.high, note if x.difference is not None else "no pair"))
    if not rows:
        return None
    baseline, looks = sheet.paired[0].baseline, pick_styles(looks, [x.algorithm for x in sheet.paired])
    label = f"{sheet.unit.points} above {baseline}".strip()
    caption = (
        f"Algorithm minus {baseline} at the same seed and held-out domain: mean and 95 % confidence interval. The "
        "words are the verdict of a sign-flip permutation test after Holm's correction."
    )
    return Figure("differences", f"Against {baseline}", [draw_rows(rows, label, looks, zero=True)], caption, looks)


def _take_held_out(outcome: Outcome, values: Sequence[float]) -> float:
    """Return the value of an outcome's domain, or the mean of those that a protocol holds out at once."""
    return fmean(values) if outcome.record.is_joint else values[outcome.domain_index]


def draw_curves(sheet: Sheet, chosen: Sequence[Outcome], looks: Looks) -> Figure | None:
    """Draw the training loss, and the criterion on source validation and the held-out domain, over the steps."""
    criterion, factor = sheet.criterion, sheet.unit.factor
    sound = [o for o in chosen if o.value is not None]
    losses, source, held_out = {}, {}, {}
    for name in dict.fromkeys(o.algorithm for o in sound):
        trials = _keep_usual_length([o for o in sound if o.algorithm == name])
        steps = trials[0].record.history[-1].step
        curve = _average_curves([o.record.losses for o in trials])
        losses[name] = [steps * (i + 0.5) / len(curve) for i in range(len(curve))], curve
        at = [e.step for e in trials[0].record.history]
        inside = [[factor * fmean(e.source[criterion]) for e in o.record.history] for o in trials]
        outside = [[factor * _take_held_out(o, e.held_out[criterion]) for e in o.record.history] for o in trials]
        source[name], held_out[name] = (at, _average_curves(inside)), (at, _average_curves(outside))
    if not losses:
        return None
    title, looks = sheet.unit.title, pick_styles(looks, losses)
    panels = [
        _draw_losses(losses, looks),
        draw_lines(source, "step", title, looks, "Source validation"),
        draw_lines(held_out, "step", title, looks, "Held-out domain"),
    ]
    caption = (
        "Means over all trials and held-out domains, diverged trials left out. Each algorithm has its own training "
        "loss (agg averages over domains, sequential ones sum), so compare shapes there, not heights."
    )
    return Figure("curves", "Training", panels, caption, looks, has_legend=True)


def _keep_usual_length(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes with the most common number of evaluations and losses, so that curves can be averaged."""
    sizes = [(len(o.record.history), len(o.record.losses)) for o in outcomes]
    usual = max(dict.fromkeys(sizes), key=sizes.count)
    return [o for o, size in zip(outcomes, sizes, strict=True) if size == usual]


def _draw_losses(losses: Mapping[str, tuple[list[float], list[float]]], looks: Looks) -> Panel:
    """Draw the losses, cut off above where a few values would flatten all others."""
    values = sorted(v for _, ys in losses.values() for v in ys if math.isfinite(v))
    top = values[math.ceil(0.95 * len(values)) - 1] * 1.3 if values else 1.0
    heading = "Training loss"
    if values and values[-1] > 2 * top:
        heading = f"Training loss, cut off at {top:.2g}"
        losses = {name: (xs, [min(v, top) for v in ys]) for name, (xs, ys) in losses.items()}
    return draw_lines(losses, "step", "loss", looks, heading)


def _average_curves(curves: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(values) for values in zip(*curves, strict=True)]


def draw_cost(sheet: Sheet, chosen: Sequence[Outcome], looks: Looks) -> Figure | None:
    """Draw the average over domains against the time that a trial takes."""
    points: list[Values] = []
    for name in sheet.columns:
        cell, time = sheet.cell(AVERAGE, name), average_seconds(chosen, name)
        if cell is not None and cell.mean is not None and time:
            low, high = _find_ends(cell.mean, cell.stderr)
            points.append({"name": name, "x": time, "y": cell.mean, "low": low, "high": high, "look": name})
    if not points:
        return None
    looks, seconds = pick_styles(looks, [p["name"] for p in points]), [p["x"] for p in points]
    wide = max(seconds) / min(seconds) > 4
    panel = draw_points(points, "seconds per trial", sheet.unit.title, looks, "Average over domains", wide)
    caption = (
        "Time is a trial's share of the stack it was trained in, evaluation included; so it is the time of this run."
    )
    title = "Cost against error" if sheet.unit.is_of_numbers else "Cost against accuracy"
    return Figure("cost", title, [panel], caption, looks, has_legend=True)


def average_seconds(chosen: Sequence[Outcome], algorithm: str) -> float | None:
    """Return the seconds of a trial on average; those that diverged may have ended early and do not count."""
    return mean_and_error([o.record.seconds for o in chosen if o.algorithm == algorithm and o.value is not None])[0]
