"""Choose among candidates for your own domains, and estimate how the chosen one will do on the next domain."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.estimator.compare.candidates import ALL_USUAL, NETS
    from seqdg.estimator.compare.comparing import (
        DoubtfulChoice,
        choose_estimator,
        compare,
        count_workers,
        fit_and_estimate,
    )
    from seqdg.estimator.compare.comparison import Comparison
    from seqdg.estimator.compare.kept_records import remove_kept
    from seqdg.estimator.compare.searches import parse_settings_texts

__getattr__, __dir__ = open_front(__name__)
