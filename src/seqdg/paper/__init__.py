"""The paper's analyses, a file each: it computes numbers from a study, shows them in a report, and registers itself."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.paper.study import Study

__getattr__, __dir__ = open_front(__name__)
