"""DomainBed, a checkout that the user has: its sweeps as runs, its classes as learners, ours in its scripts."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.interop.classes import describe_classes, make_learner
    from seqdg.interop.sweep import describe_import, import_sweep

__getattr__, __dir__ = open_front(__name__)
