"""What the lists of WILDS (Koh et al., ICML 2021) leave to its code: which rows are for what. Facts from its version 2.

Each function gets a list as words, and its folder, and returns it with a column `part`: train, id_val, val (another
domain than those for training), id_test or test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqdg.base import UsageError

CAMELYON_VALIDATION, CAMELYON_TEST = "1", "2"  # hospitals
FMOW_VALIDATION, FMOW_TEST = "2013", "2016"  # the first years of each


def divide_camelyon17(frame: Any, folder: Path) -> Any:
    """Divide by hospitals: 1 validates and 2 tests. In the others, the list marks the rows that validate within."""
    _need(frame, "center", "split")
    part = np.where(frame["split"] == "1", "id_val", "train")
    part = np.where(frame["center"] == CAMELYON_VALIDATION, "val", part)
    return frame.assign(part=np.where(frame["center"] == CAMELYON_TEST, "test", part))


def divide_fmow(frame: Any, folder: Path) -> Any:
    """Divide by years: to 2012 they are for training, 2013 to 2015 validate, from 2016 on test, each by rows of one
    split of the list.

    Add `year`, `region` (of the country; `Other` where none is known) and the `number` by which a picture is named.
    Sequestered rows, and rows of later years that are of another split, serve nothing and are left out.
    """
    from seqdg.data.image_list import read_words

    _need(frame, "split", "timestamp", "country_code")
    countries = read_words(folder / "country_code_mapping.csv")
    regions = dict(zip(countries["alpha-3"], countries["region"], strict=True))
    year = frame["timestamp"].str[:4]
    within = frame["split"].map({"train": "train", "val": "id_val", "test": "id_test"})
    part = within.where(year < FMOW_VALIDATION)
    part = part.mask((year >= FMOW_VALIDATION) & (year < FMOW_TEST) & (frame["split"] == "val"), "val")
    part = part.mask((year >= FMOW_TEST) & (frame["split"] == "test"), "test")
    region = [regions.get(code) or "Other" for code in frame["country_code"]]
    result = frame.assign(year=year, region=region, number=[str(i) for i in range(len(frame))], part=part)
    return result[part.notna()]


def _need(frame: Any, *names: str) -> None:
    for name in names:
        if name not in frame.columns:
            raise UsageError(f"The list has no column '{name}': it is not the one of WILDS.")
