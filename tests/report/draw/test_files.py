from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from seqdg.report.draw import svg
from seqdg.report.draw.files import write_figures
from seqdg.report.draw.marks import Dot, Figure, Line, Picture, Text
from seqdg.report.draw.plots import Point, Row, Series, plot_lines, plot_points, plot_rows, plot_scatter
from seqdg.report.draw.theme import SHAPES, Style, make_styles

NASTY = "<script>&\"'$x_1$\\evil{} 漢字"


@pytest.fixture
def figure() -> Figure:
    looks = make_styles([NASTY, "b"])
    rows = [Row(NASTY, looks[NASTY], 1.0, 0.5, 1.5), Row("b", looks["b"], None, note="diverged")]
    curves = [Series(NASTY, looks[NASTY], [0, 1, 2], [3.0, 2.0, 1.0])]
    return Figure(
        "name", NASTY,
        [plot_rows(rows, "label", NASTY), plot_lines(curves, "x", "y", NASTY, (1.0, "here"), (2.0, "level"))],
        legend=[(NASTY, looks[NASTY])],
    )  # fmt: skip


def test_pictures_count_their_marks(figure):
    assert [p.data_marks for p in figure.pictures] == [2, 1]  # a bar and its dot; a curve
    cloud = plot_points([(0, 0), (1, 1), (2, 0)], ["a", "b", "a"], make_styles(["a", "b"]), "cloud", "score 0.5")
    assert cloud.data_marks == 3
    assert plot_scatter([Point("a", Style("c0"), 1.0, 2.0, 1.5, 2.5)], "x", "y", "z").data_marks == 2


def test_a_figure_is_well_formed_xml_in_a_page_and_in_a_file_whatever_the_names(figure):
    for text in [svg.format_figure(figure), *map(svg.inline, figure.pictures)]:
        root = ET.fromstring(text)
        assert not list(root.iter("script"))
        words = "".join(root.itertext())
        assert NASTY[:8] in words


def test_words_for_those_who_cannot_see_name_every_value(figure):
    shown = svg.inline(figure.pictures[0])
    assert 'role="img"' in shown
    assert "b diverged" in figure.pictures[0].title


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_drawn_around_its_middle(shape):
    picture = Picture(20, 20, (Dot(10, 10, "c0", shape, 4),), "t")
    assert 'class="mark"' in svg.inline(picture)
    if shape not in ("circle", "cross"):
        corners = svg.list_corners(Dot(10, 10, "c0", shape, 4))
        assert sum(x for x, _ in corners) / len(corners) == pytest.approx(10)


def test_colors_in_a_page_are_the_pages_and_in_a_file_are_fixed(figure):
    assert "var(--c0)" in svg.inline(figure.pictures[0])
    assert "var(" not in svg.format_figure(figure)


def test_figures_are_written_as_svg_and_pdf_the_same_every_time(figure, tmp_path):
    pytest.importorskip("matplotlib", reason="PDF figures need matplotlib.")
    plain = Figure("plain", "t", [Picture(50, 50, (Line(((0, 0), (9, 9)), "c0", data=True), Text(1, 9, "a$b")), "t")])
    first = write_figures([plain], tmp_path / "one")
    again = write_figures([plain], tmp_path / "two")
    assert [p.name for p in first] == ["plain.svg", "plain.pdf"]
    assert first[1].read_bytes().startswith(b"%PDF")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
