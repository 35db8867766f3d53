"""Tables, figures and the HTML page of a run, made from its records."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.report.analyses import (
        HOW,
        AnalysisKind,
        Payload,
        Section,
        Table,
        describe_study,
        find_analysis,
        format_mean,
        format_significant,
        list_analyses,
        make_section,
        register_analysis,
        show_analysis,
    )
    from seqdg.report.charts import (
        MISSING,
        Figure,
        Looks,
        Panel,
        Style,
        can_draw,
        draw_cloud,
        draw_domains,
        draw_lines,
        draw_points,
        draw_rows,
        make_row,
        make_styles,
        pick_styles,
        write_figures,
    )
    from seqdg.report.page import Page, render_page, write_summary_page
    from seqdg.report.published import find_column, load_minutes
    from seqdg.report.results import Results, watch_run
    from seqdg.report.sheet import Sheet, are_several_sets, summarize_runs
    from seqdg.report.table import draw_table, render, render_costs, shorten_names
    from seqdg.report.tracking import Exporter

__getattr__, __dir__ = open_front(__name__)
