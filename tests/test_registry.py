from __future__ import annotations

import importlib

import seqdg


def test_the_names_can_be_listed_before_and_after_the_folder_of_that_name_is_imported():
    first = seqdg.algorithms()
    importlib.import_module("seqdg.algorithms.mldg")
    assert seqdg.algorithms() == first
    assert {"agg", "mldg", "fo-mldg", "s-mldg", "fo-s-mldg", "ffo-s-mldg"} <= set(first)
