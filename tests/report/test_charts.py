"""What charts draw: values, axes, words and colors, in Vega-Lite's own terms; and the files made of them."""

from __future__ import annotations

import builtins
import json
import math
import xml.etree.ElementTree as ET

import pytest

from seqdg.base import UsageError
from seqdg.report import draw_cloud, draw_domains, draw_lines, draw_points, draw_rows, make_row
from seqdg.report.page import Charts
from seqdg.report.sheet import build_sheet

pytest.importorskip("vl_convert", reason="Charts need vl-convert-python.")

from seqdg.report.charts import (
    LIGHT,
    MISSING,
    SHAPES,
    Figure,
    Style,
    compile_for_page,
    load_vega,
    make_styles,
    pick_styles,
    render_figure,
    write_figures,
)

NASTY = "<script>&\"'$x_1$\\evil{} 漢字"
LOOKS = make_styles(["agg", "mldg", NASTY])
ROWS = draw_rows(
    [make_row("agg", 1.0, 0.5, 1.5, "better"), make_row("mldg", None, note="diverged")],
    "points", LOOKS, "V", zero=True,
)  # fmt: skip
LINES = draw_lines(
    {"agg": ([0, 10, 20], [3.0, 2.0, 1.0])}, "step", "loss", LOOKS, "Loss", (10, "here"), (2.0, "chance")
)
CLOUD = draw_cloud([(0.0, 1.0), (2.0, 3.0), (1.0, 1.0)], ["agg", "mldg", "agg"], LOOKS, "raw data", "silhouette 0.50")
POINTS = draw_points(
    [
        {"name": "agg", "x": 0.5, "y": 60.0, "low": 59.0, "high": 61.0, "look": "agg"},
        {"name": "mldg", "x": 8.0, "y": 62.0, "low": None, "high": None, "look": "mldg"},
    ],
    "seconds", "Accuracy", LOOKS, "Cost", log=True,
)  # fmt: skip


def spec(*panels, **settings) -> dict:
    return json.loads(Figure("f", "Title", panels, looks=LOOKS, **settings).to_json())


def rows(drawn: dict) -> list[dict]:
    """The data of the first panel."""
    return drawn["datasets"][(drawn["concat"][0].get("data") or drawn["data"])["name"]]


def layers(drawn: dict, mark: str) -> list[dict]:
    """The layers of the first panel with this kind of mark."""
    panel = drawn["concat"][0]
    return [layer for layer in panel.get("layer", [panel]) if layer["mark"]["type"] == mark]


def test_rows_draw_every_value_its_bar_and_a_word_where_there_is_none():
    drawn = spec(ROWS)
    assert rows(drawn) == [
        {"label": "agg", "look": "agg", "value": 1.0, "low": 0.5, "high": 1.5, "note": "better"},
        {"label": "mldg", "look": "mldg", "value": None, "low": None, "high": None, "note": "diverged"},
    ]
    rule, bar = layers(drawn, "rule")
    assert rule["encoding"]["x"]["datum"] == 0.0
    assert (bar["encoding"]["x"]["field"], bar["encoding"]["x2"]["field"]) == ("low", "high")
    (dot,) = layers(drawn, "point")
    assert dot["encoding"]["x"]["title"] == "points"
    assert (dot["encoding"]["x"]["field"], dot["encoding"]["y"]["field"], dot["encoding"]["y"]["sort"]) == (
        "value", "label", None,
    )  # fmt: skip
    assert [t["field"] for t in dot["encoding"]["tooltip"]] == ["label", "value", "low", "high"]
    missing, note = layers(drawn, "text")
    assert (missing["transform"][-1]["filter"], note["transform"][-1]["filter"]) == (
        "!isValid(datum.value)", "isValid(datum.value)",
    )  # fmt: skip
    assert drawn["concat"][0]["title"]["text"] == "V"


def test_a_panel_of_missing_values_alone_has_words_and_no_axis():
    panel = draw_rows([make_row("agg", None, note="diverged")], "points", LOOKS)
    assert [layer["mark"]["type"] for layer in spec(panel)["concat"][0]["layer"]] == ["text"]
    assert b"diverged" in render_figure(Figure("f", "t", [panel], looks=LOOKS))


def test_curves_are_drawn_in_their_order_between_marked_places():
    drawn = spec(LINES, has_legend=True)
    assert [(r["x"], r["y"]) for r in rows(drawn)] == [(0, 3.0), (10, 2.0), (20, 1.0)]
    (line,) = layers(drawn, "line")
    encoding = line["encoding"]
    assert (encoding["x"]["title"], encoding["y"]["title"], encoding["order"]["field"]) == ("step", "loss", "i")
    assert encoding["y"]["scale"]["zero"] is False
    assert [(w["mark"]["text"], w["mark"]["clip"]) for w in layers(drawn, "text")] == [
        ("chance", False),
        ("here", False),
    ]
    level, upright = layers(drawn, "rule")
    assert (level["encoding"]["y"]["datum"], upright["encoding"]["x"]["datum"]) == (2.0, 10)
    assert {p["name"]: p["value"] for p in drawn["params"]} == {"follow": "", "hidden": []}
    assert drawn["params"][0]["bind"]["options"] == ["", *LOOKS]


def test_a_curve_is_broken_where_it_is_not_finite_and_a_value_alone_is_a_dot():
    curve = [0, 1, 2, 3, 4], [0.1, math.nan, 0.3, math.inf, 0.4]
    drawn = spec(draw_lines({"agg": curve}, "x", "y", LOOKS, "h"))
    assert [r["y"] for r in rows(drawn)] == [0.1, None, 0.3, None, 0.4]
    assert [r["alone"] for r in rows(drawn)] == [True, False, True, False, True]
    dots = [layer for layer in layers(drawn, "point") if {"filter": "datum.alone"} in layer.get("transform", [])]
    assert len(dots) == 1
    assert len([layer for layer in layers(spec(LINES), "point") if len(layer["transform"]) > 1]) == 0


def test_a_range_that_is_asked_for_is_the_axis():
    panel = draw_lines({"agg": ([0, 1], [40.0, 50.0])}, "x", "y", LOOKS, "h", limits=(30.0, 100.0))
    (line,) = layers(spec(panel), "line")
    assert line["encoding"]["y"]["scale"]["domain"] == [30.0, 100.0]


def test_clouds_have_a_point_for_each_row_and_no_numbers_on_their_axes():
    drawn = spec(CLOUD, has_legend=True)
    assert rows(drawn)[1] == {"look": "mldg", "x": 2.0, "y": 3.0}
    (cloud,) = layers(drawn, "point")
    assert cloud["encoding"]["x"]["axis"] == {"title": "silhouette 0.50", "labels": False, "grid": False}


def test_named_points_have_bars_where_they_have_errors_and_a_logarithmic_axis_where_asked_for():
    drawn = spec(POINTS)
    (bar,), (dot,) = layers(drawn, "rule"), layers(drawn, "point")
    assert bar["transform"][1:] == [{"filter": "isValid(datum.low)"}]
    assert (dot["encoding"]["x"]["scale"]["type"], dot["encoding"]["x"]["title"]) == ("log", "seconds")
    assert rows(drawn)[0]["y"] == 60.0


def test_a_name_has_its_color_shape_and_dash_everywhere():
    for panel in (ROWS, LINES, CLOUD, POINTS):
        for layer in spec(panel, has_legend=True)["concat"][0].get("layer", [spec(panel)["concat"][0]]):
            for channel, kind in (("color", "color"), ("shape", "shape"), ("strokeDash", "dash")):
                scale = layer.get("encoding", {}).get(channel, {}).get("scale")
                if not scale:
                    continue
                for name, value in zip(scale["domain"], scale["range"], strict=True):
                    style = getattr(LOOKS[name], kind)
                    assert value == (LIGHT[style] if kind == "color" else list(style) if kind == "dash" else style)


def test_a_look_may_have_another_name_than_the_row():
    panel = draw_rows([make_row("column 1", 1.0, look="agg"), make_row("column 2", 2.0, look="agg")], "drop", LOOKS)
    assert [r["look"] for r in rows(spec(panel))] == ["agg", "agg"]


def test_styles_are_picked_in_the_order_of_all():
    assert list(pick_styles(LOOKS, ["mldg", "agg", "other"])) == ["agg", "mldg"]


def test_panels_are_told_in_words():
    assert ROWS.description == "V: points. agg 1, mldg diverged."
    assert LINES.description == "Loss: loss over step. agg ends at 1."
    assert CLOUD.description == "raw data: 3 points in 2 classes. silhouette 0.50"
    assert POINTS.description == "Cost: Accuracy against seconds. agg 0.5 and 60, mldg 8 and 62."
    assert spec(ROWS)["concat"][0]["description"] == ROWS.description


@pytest.fixture
def figure() -> Figure:
    values = [make_row(NASTY, 1.0, 0.5, 1.5), make_row("agg", None, note="diverged")]
    dots = draw_rows(values, "label", LOOKS, NASTY)
    curve = {NASTY: ([0, 1, 2], [3.0, 2.0, 1.0])}
    lines = draw_lines(curve, "x", "y", LOOKS, NASTY, (1.0, "here"), (2.0, "level"))
    return Figure("a/name", NASTY, [dots, lines, CLOUD, POINTS], looks=LOOKS, has_legend=True)


def test_a_file_is_well_formed_whatever_the_names_and_has_every_mark_on_white(figure):
    root = ET.fromstring(render_figure(figure, "svg"))
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    words = "".join(root.itertext())
    assert NASTY[:8] in words
    assert "diverged" in words
    assert "var(" not in ET.tostring(root, encoding="unicode")
    symbols = [g for g in root.iter() if g.get("class", "").startswith("mark-symbol role-mark")]
    assert sorted(len(list(g)) for g in symbols) == [1, 2, 3, 3]  # a row, two points, a cloud, and a curve's values


def test_figures_are_written_as_svg_pdf_and_png_and_pictures_are_the_same_every_time(tmp_path):
    small = Figure("a/name", "t", [LINES], looks=LOOKS, has_legend=True)
    first = write_figures([small], tmp_path / "one")
    assert [p.name for p in first] == ["a-name.svg", "a-name.pdf", "a-name.png"]
    assert [p.read_bytes()[:4] for p in first] == [b"<svg", b"%PDF", b"\x89PNG"]
    assert [first[i].read_bytes() for i in (0, 2)] == [render_figure(small, kind) for kind in ("svg", "png")]


def test_a_notebook_shows_a_figure(figure):
    shown = figure._repr_mimebundle_()
    assert any("html" in kind or "vega" in kind for kind in (shown[0] if isinstance(shown, tuple) else shown))


def test_in_a_page_colors_are_the_pages_and_panels_of_a_kind_share_a_chart():
    compiled = compile_for_page(ROWS)
    assert "var(--c0)" in json.dumps(compiled)
    assert LIGHT["c0"] not in json.dumps(compiled)
    assert {"follow", "hidden"} <= {s["name"] for s in compiled["signals"]}
    assert [d for d in compiled["data"] if d["name"] == "rows"]
    assert compiled["autosize"]["type"] == "fit-x"
    charts = Charts()
    alike = draw_rows([make_row("agg", 7.0, 6.0, 8.0)], "points", LOOKS, "L", zero=True)
    assert [charts.add(panel) for panel in (ROWS, alike, ROWS)] == [0, 1, 0]
    without_bars = draw_rows([make_row("agg", 7.0)], "points", LOOKS, "L", zero=True)
    assert charts.add(without_bars) == 2
    parts = charts.list_parts()
    assert [panel["chart"] for panel in parts["panels"]] == [0, 0, 1]
    assert parts["panels"][0]["columns"]["value"] == [1.0, None]
    assert parts["charts"][0] == compiled == compile_for_page(alike)
    assert "zoom_x" in {s["name"] for s in compile_for_page(LINES)["signals"]}


def test_the_script_that_draws_asks_no_server_and_closes_no_tag():
    script = load_vega()
    assert "vegaEmbed" in script
    assert "</script" not in script.lower()
    assert "import(" not in script


def test_every_shape_is_one_of_vegas_and_a_style_has_the_first_unless_named():
    assert set(SHAPES) <= {"circle", "square", "cross", "diamond", "triangle-up"}
    assert json.loads(json.dumps(Style("c0").dash)) == [1, 0]


def test_where_vl_convert_is_missing_a_sentence_names_the_extra(figure, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "vl_convert":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"pip install 'seqdg\[figures\]'"):
        render_figure(figure)
    assert "seqdg[figures]" in MISSING


def test_panels_of_domains_say_what_is_held_out_share_a_scale_and_begin_with_the_best_on_average(run):
    values = {"agg": {"V": [0.9, 0.92], "L": [0.5, 0.52]}, "mldg": {"V": [0.8, 0.8], "L": [0.7, 0.7]}}
    sheet = build_sheet(run(values))
    panels = draw_domains(sheet, make_styles(sheet.columns)).panels
    assert [panel.heading for panel in panels] == ["Held out: V", "Held out: L", "Average"]
    assert all([row["label"] for row in panel.rows] == ["mldg", "agg"] for panel in panels)
    scales = {
        str(layer["encoding"]["x"]["scale"]["domain"]) for panel in panels for layer in layers(spec(panel), "point")
    }
    assert scales == {"[50.0, 92.0]"}
