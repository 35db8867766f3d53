"""A file each. `seqdg.build(name)` finds them by the names that they register."""

from __future__ import annotations

import sys
from types import ModuleType


class _Folder(ModuleType):
    """Importing this folder binds `seqdg.algorithms` to it, where the function of that name was: so it is one too."""

    def __call__(self) -> tuple[str, ...]:
        from seqdg.core.registry import algorithms

        return algorithms()


sys.modules[__name__].__class__ = _Folder
