"""Studies: what is run to answer questions that were fixed beforehand, and the answers."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.study.definition import load_study
    from seqdg.study.hypotheses import USUAL, answer_study, make_answers_figure, render_answers
    from seqdg.study.part_runner import (
        OutOfTime,
        StudyWhere,
        describe_plan,
        publish_parts,
        run_study,
    )

__getattr__, __dir__ = open_front(__name__)
