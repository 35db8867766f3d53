"""Choose among candidates for your own domains, and estimate how the chosen one will do on the next domain."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.estimator.compare.comparing import (
        ALL_USUAL,
        NETS,
        DoubtfulChoice,
        compare,
        count_workers,
        fit_and_estimate,
        list_quick,
        parse_settings_texts,
    )
    from seqdg.estimator.compare.comparison import Comparison
    from seqdg.estimator.compare.folds import remove_kept

__getattr__, __dir__ = open_front(__name__)
