"""Charts of panels by Vega-Altair: in a page, in a notebook, and as SVG, PDF and PNG files without a browser.

Vega finds scales, ticks and the places of labels. Colors come from the caller, so that a chart has the page's light and
dark colors there, and fixed ones in a file.
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
from typing import Any

from seqdg.base import UsageError
from seqdg.report.panels import Cloud, Lines, Panel, Points, Rows, Values
from seqdg.report.theme import LIGHT, Looks
from seqdg.results import make_directory

MISSING = "Figures need altair and vl-convert-python: pip install 'seqdg[report]'."
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first comes with vl-convert: files are alike everywhere
WIDTH, HEIGHT, ROW, CLOUD = 250, 170, 22, 200  # pixels, without axes
PAGE = {role: f"var(--{role})" for role in LIGHT}
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
FADED = 0.2  # opacity of what is not followed


@dataclass(frozen=True)
class Figure:
    """Panels with what they share. In a notebook it shows itself."""

    name: str  # of its file
    title: str
    panels: Sequence[Panel]
    caption: str = ""
    looks: Looks = field(default_factory=dict)
    has_legend: bool = False

    def list_names(self) -> list[str]:
        """Return what the panels show, in the order of the styles."""
        shown = {name for panel in self.panels for name in panel.list_names()}
        return [name for name in self.looks if name in shown]

    @property
    def shown_looks(self) -> Looks:
        return {name: self.looks[name] for name in self.list_names()}

    def _repr_mimebundle_(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> Any:
        return draw_figure(self)._repr_mimebundle_(include, exclude)


def can_draw() -> bool:
    """Say whether the libraries that draw are installed."""
    return all(map(find_spec, ("altair", "vl_convert")))


def _load() -> Any:
    """Return Altair, imported when something is drawn."""
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError:
        raise UsageError(MISSING) from None
    return altair


@cache
def load_vega() -> str:
    """Return the script that defines `vegaEmbed` in a page, as vl-convert ships it."""
    import vl_convert

    return f"(() => {{{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}}})();"


def write_figures(figures: Sequence[Figure], folder: Path, kinds: Sequence[str] = ("svg", "pdf", "png")) -> list[Path]:
    """Write each figure as NAME.svg, NAME.pdf and NAME.png, and return the paths."""
    _load()
    make_directory(folder, "--figures")
    paths = []
    for figure in figures:
        for kind in kinds:
            paths.append(folder / name_file(figure, kind))
            paths[-1].write_bytes(render_figure(figure, kind))
    return paths


def name_file(figure: Figure, kind: str = "svg") -> str:
    name = "".join(ch if ch.isalnum() or ch in "-_." else "-" for ch in figure.name).strip(".")
    return f"{name}.{kind}"


def render_figure(figure: Figure, kind: str = "svg") -> bytes:
    """Return the contents of an svg, pdf or png file."""
    spec = json.dumps(draw_figure(figure).to_dict())
    import vl_convert

    if kind == "svg":
        numbers: dict[str, str] = {}  # Vega goes on counting from file to file; the same figure gives the same file
        number = lambda found: found[1] + numbers.setdefault(found[2], f"part{len(numbers)}")  # noqa: E731
        svg = re.sub(r'(id="|url\(#|role-(?:mark|scope) )(clip\d+|view_\w+)', number, vl_convert.vegalite_to_svg(spec))
        return f"{svg}\n".encode()
    return bytes(vl_convert.vegalite_to_pdf(spec) if kind == "pdf" else vl_convert.vegalite_to_png(spec, scale=2))


def draw_figure(figure: Figure) -> Any:
    """Return the Altair chart: panels side by side, and a legend in which a click follows a name."""
    alt = _load()
    marks = Marks(figure.shown_looks, LIGHT, {"param": "follow"} if figure.has_legend else {}, figure.has_legend)
    charts = [draw_panel(panel, marks, str(i)) for i, panel in enumerate(figure.panels)]
    words = [isinstance(panel, Lines) and panel.upright is not None for panel in figure.panels]  # above a plot
    for i, panel in enumerate(figure.panels):
        if panel.heading:  # those of neighbours stand in a line
            title = alt.Title(panel.heading, offset=25 if any(words) and not words[i] else 10)
            charts[i] = charts[i].properties(title=title)
    whole = alt.concat(*charts, columns=4 if isinstance(figure.panels[0], Cloud) else 3, spacing=28)
    if any(isinstance(panel, Lines) for panel in figure.panels):
        whole = whole.resolve_scale(shape="independent")  # the legend has lines, not the dots of other panels
    whole = whole.properties(datasets=marks.rows, description=figure.title, padding=14)
    return whole.configure(**make_config(LIGHT, FONT))


def draw_for_page(panel: Panel, looks: Looks) -> dict[str, Any]:
    """Return the chart of a panel for the page, as Vega, without its rows: panels of a kind have the same chart.

    Its colors are those of the page; its signals `follow` (a name, or nothing) and `hidden` (a list of names) are set
    by the page, as its width is.
    """
    import vl_convert

    with _load().utils.schemapi.debug_mode(False):  # the same charts as in files, where Altair checks them
        follow = {"test": "follow === '' || datum.look === follow"}
        marks = Marks(looks, PAGE, follow, shown="indexof(hidden, datum.look) < 0")
        chart = draw_panel(panel, marks).to_dict(validate=False)
    set_by_page = [{"name": "follow", "value": ""}, {"name": "hidden", "value": []}]
    chart |= {
        "params": [*chart.get("params", []), *set_by_page], "autosize": {"type": "fit-x", "contains": "padding"},
        "datasets": {"rows": []}, "description": "", "config": {**make_config(PAGE, PAGE_FONT), "background": None},
    }  # fmt: skip
    return dict(vl_convert.vegalite_to_vega(chart))


def make_config(colors: Mapping[str, str], font: str) -> dict[str, Any]:
    """Return what all charts share: fonts, and the colors of axes and words."""
    axis = {
        "labelFontSize": 11, "titleFontSize": 11, "labelColor": colors["muted"], "titleColor": colors["muted"],
        "titleFontWeight": "normal", "domain": False, "ticks": False, "gridColor": colors["grid"], "labelPadding": 5,
        "labelLimit": 140, "titleLimit": WIDTH, "labelFlush": False,
    }  # fmt: skip
    title = {"anchor": "start", "frame": "group", "fontSize": 13, "color": colors["text"], "limit": WIDTH + 40}
    legend = {
        "labelFontSize": 12, "labelColor": colors["text"], "title": None, "orient": "bottom", "symbolSize": 90,
        "columns": 5, "labelLimit": 180, "columnPadding": 16,
    }  # fmt: skip
    return {
        "font": font, "background": colors["paper"], "view": {"stroke": None}, "axis": axis, "legend": legend,
        "title": title, "text": {"color": colors["muted"], "fontSize": 11},
    }  # fmt: skip


class Marks:
    """The encodings that panels share: color, shape and dash by name, and how strong a mark is.

    follow: Vega-Lite's condition that holds of what is followed; the rest fades. Empty: nothing fades.
    shown: what holds of the rows that are drawn. Empty: all are.
    """

    def __init__(
        self, looks: Looks, colors: Mapping[str, str], follow: Values, has_legend: bool = False, shown: str = ""
    ) -> None:
        self.alt = alt = _load()
        self.colors, self.shown, self.has_legend = colors, shown, has_legend
        self.rows: dict[str, list[Values]] = {}  # of every panel that was drawn
        self._clicked = [alt.selection_point(name="follow", fields=["look"], bind="legend")] if has_legend else []

        def encode_name(channel: Any, values: Sequence[Any]) -> Any:
            return channel("look:N", scale=alt.Scale(domain=list(looks), range=values), legend=None)

        self.color = encode_name(alt.Color, [colors[s.color] for s in looks.values()])
        self.shape = encode_name(alt.Shape, [s.shape for s in looks.values()])
        self.dash = encode_name(alt.StrokeDash, [list(s.dash) for s in looks.values()])
        self.opacity = alt.OpacityValue(FADED, condition={**follow, "value": 1}) if follow else alt.OpacityValue(1)

    def make_chart(self, key: str, panel: Panel) -> Any:
        """Return a chart of the panel's values, which it names; they are kept in `rows`."""
        self.rows[f"rows{key}"] = list_rows(panel)
        chart = self.alt.Chart(self.alt.NamedData(f"rows{key}"))
        return chart.transform_filter(self.shown) if self.shown else chart

    def take_legend(self) -> list[Any]:
        """Return the parameter that the legend sets, once: the first panel's marks get it, and all know it by name."""
        taken, self._clicked = self._clicked, []
        return taken

    def add_to_legend(self, channel: Any, **symbol: Any) -> Any:
        """Return the encoding with its names in the legend, where there is one."""
        return channel.legend(**symbol) if self.has_legend else channel

    def encode_number(self, axis: str, field: str, title: str, **scale: Any) -> Any:
        """Return the encoding of a number on axis x or y; what is in view is the range of the data and a margin."""
        channel = self.alt.X if axis == "x" else self.alt.Y
        settings = {"nice": False, "padding": 9, **({} if "type" in scale else {"zero": False}), **scale}
        axes = self.alt.Axis(tickCount=5, grid=True)
        return channel(f"{field}:Q", title=title, scale=self.alt.Scale(**settings), axis=axes)

    def list_tooltips(self, **fields: str) -> list[Any]:
        """Return tooltips: the word that stands before the value of each field."""
        kinds = {f: {"type": "nominal"} if f in ("look", "label", "name") else {"format": ".4g"} for f in fields}
        return [self.alt.Tooltip(f"{field}:Q", title=word, **kinds[field]) for field, word in fields.items()]

    def draw_rule(self, axis: str, value: float, word: str = "") -> list[Any]:
        """Return a dashed rule across the panel. Its word stands outside, where it covers nothing."""
        place = {axis: (self.alt.XDatum if axis == "x" else self.alt.YDatum)(value, type="quantitative")}
        nothing = self.alt.Chart(self.alt.Data(values=[{}]))
        rule = nothing.mark_rule(strokeDash=[4, 3], color=self.colors["rule"]).encode(**place)
        beside = {"baseline": "bottom", "y": -3} if axis == "x" else {"align": "left", "x": "width", "dx": 4}
        return [rule, nothing.mark_text(text=word, clip=False, **beside).encode(**place)] if word else [rule]


def list_rows(panel: Panel) -> list[Values]:
    """Return the values that the panel's chart draws, without what JSON cannot hold and digits that nobody sees."""
    return [{name: _clean(value) for name, value in row.items()} for row in panel.list_values()]


def _clean(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def draw_panel(panel: Panel, marks: Marks, key: str = "") -> Any:
    """Return the Altair chart of one panel, without its heading; `key` tells its names from those of its neighbours."""
    if isinstance(panel, Rows):
        return _draw_rows(panel, marks, key)
    if isinstance(panel, Lines):
        return _draw_lines(panel, marks, key)
    return _draw_cloud(panel, marks, key) if isinstance(panel, Cloud) else _draw_points(panel, marks, key)


def _draw_rows(panel: Rows, marks: Marks, key: str) -> Any:
    alt, known = marks.alt, any(row.value is not None for row in panel.rows)
    labels = alt.Axis(grid=False, labelColor=marks.colors["text"], labelFontSize=12)
    base = marks.make_chart(key, panel).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=labels), color=marks.color, opacity=marks.opacity,
        tooltip=marks.list_tooltips(label="name", value=panel.label, low="from", high="to"),
    )  # fmt: skip
    words = base.encode(color=alt.ColorValue(marks.colors["muted"]), text="note:N")
    layers = [words.transform_filter("!isValid(datum.value)").mark_text(align="left", x=6)]
    if known:
        scale = {"type": "log"} if panel.log else {}
        low, value = (marks.encode_number("x", field, panel.label, **scale) for field in ("low", "value"))
        there = base.transform_filter("isValid(datum.value)")
        bars = [there.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(x=low, x2="high:Q")]
        layers += [
            *(marks.draw_rule("x", 0.0) if panel.zero else []),
            *(bars if any(row.low is not None for row in panel.rows) else []),
            there.mark_point(filled=True, size=75).encode(x=value, shape=marks.shape),
            words.transform_filter("isValid(datum.value)").mark_text(align="left", x="width", dx=5),
        ]
    return alt.layer(*layers).properties(width=WIDTH, height={"step": ROW}, description=panel.say())


def _draw_lines(panel: Lines, marks: Marks, key: str) -> Any:
    alt = marks.alt
    values = panel.list_values()
    limits = {} if panel.y is None else {"domain": list(panel.y), "padding": 0}
    base = marks.make_chart(key, panel).encode(
        x=marks.encode_number("x", "x", panel.x_label, padding=0),
        y=marks.encode_number("y", "y", panel.y_label, **limits), color=marks.color, order="i:Q",
    )  # fmt: skip
    sample = {"symbolType": "stroke", "symbolSize": 400, "symbolStrokeWidth": 2}
    color, dash = (marks.add_to_legend(channel, **sample) for channel in (marks.color, marks.dash))
    alone = [base.transform_filter("datum.alone").mark_point(filled=True, size=20).encode(opacity=marks.opacity)]
    zoom = alt.selection_interval(name=f"zoom{key}", bind="scales", zoom="wheel![event.ctrlKey]")
    layers = [
        *(marks.draw_rule("y", *panel.level) if panel.level else []),
        *(marks.draw_rule("x", *panel.upright) if panel.upright else []),
        *(alone if any(row["alone"] for row in values) else []),
        base.mark_line(strokeWidth=1.8, clip=True)
        .encode(color=color, strokeDash=dash, opacity=marks.opacity)
        .add_params(*marks.take_legend(), zoom),
        # Not to be seen: they say what is under the pointer.
        base.mark_point(size=120, opacity=0).encode(
            tooltip=marks.list_tooltips(look="name", x=panel.x_label, y=panel.y_label)
        ),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, description=panel.say())


def _draw_cloud(panel: Cloud, marks: Marks, key: str) -> Any:
    alt = marks.alt
    x, y = (
        make(f"{field}:Q", scale=alt.Scale(zero=False, nice=False, padding=6),
             axis=alt.Axis(title=title, labels=False, grid=False))
        for make, field, title in ((alt.X, "x", panel.below or None), (alt.Y, "y", None))
    )  # fmt: skip
    color, shape = marks.add_to_legend(marks.color), marks.add_to_legend(marks.shape)
    chart = marks.make_chart(key, panel).mark_point(filled=True, size=14).encode(
        x=x, y=y, color=color, shape=shape, opacity=marks.opacity, tooltip=marks.list_tooltips(look="class")
    )  # fmt: skip
    chart = chart.properties(view=alt.ViewBackground(stroke=marks.colors["grid"]), description=panel.say())
    return chart.properties(width=CLOUD, height=CLOUD).add_params(*marks.take_legend())


def _draw_points(panel: Points, marks: Marks, key: str) -> Any:
    scale = {"type": "log"} if panel.log else {}
    color, shape = marks.add_to_legend(marks.color), marks.add_to_legend(marks.shape)
    base = marks.make_chart(key, panel).encode(
        x=marks.encode_number("x", "x", panel.x_label, **scale), color=color, opacity=marks.opacity,
        tooltip=marks.list_tooltips(name="name", x=panel.x_label, y=panel.y_label, low="from", high="to"),
    )  # fmt: skip
    low, y = (marks.encode_number("y", field, panel.y_label) for field in ("low", "y"))
    bars = [base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.6).encode(y=low, y2="high:Q")]
    layers = [
        *(bars if any(p.low is not None for p in panel.points) else []),
        base.mark_point(filled=True, size=90).encode(y=y, shape=shape).add_params(*marks.take_legend()),
    ]
    return marks.alt.layer(*layers).properties(width=WIDTH, height=HEIGHT + 40, description=panel.say())
