"""Tables, figures and the HTML page of a run, made from its records."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.report.analyses import (
        HOW,
        AnalysisKind,
        Payload,
        describe_study,
        find_analysis,
        format_mean,
        list_analyses,
        list_refusals,
        register_analysis,
        show_analysis,
    )
    from seqdg.report.charts import MISSING, Figure, can_draw, write_figures
    from seqdg.report.costs import render_costs
    from seqdg.report.figures import draw_domains
    from seqdg.report.panels import Cloud, Lines, Panel, Point, Points, Row, Rows, Series
    from seqdg.report.results import Results
    from seqdg.report.section import Section, Table
    from seqdg.report.sheet import Sheet
    from seqdg.report.text import align_columns, draw_table, shorten_names
    from seqdg.report.theme import Looks, Style, make_styles
    from seqdg.report.watch import watch_run

__getattr__, __dir__ = open_front(__name__)
