"""Other projects: read what they wrote, run what they have, run ours in theirs."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.interop.domainbed.classes import describe_classes, make_learner
    from seqdg.interop.domainbed.sweep import describe_import, import_sweep

__getattr__, __dir__ = open_front(__name__)
