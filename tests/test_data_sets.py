"""The page of known data sets follows the benchmark files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seqdg.bench import list_benchmarks, load_benchmark
from seqdg.data import BUNDLED, DataSpec

PAGE = (Path(__file__).parents[1] / "docs" / "data-sets.md").read_text(encoding="utf-8")
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| `([\w-]+)` \|.*$", PAGE, re.MULTILINE)}


def test_every_benchmark_has_one_row_and_every_row_a_benchmark():
    assert sorted(ROWS) == sorted(list_benchmarks())
    assert PAGE.count("| command |") == 1
    assert len(re.findall(r"^\| `", PAGE, re.MULTILINE)) == len(ROWS)


@pytest.mark.parametrize("name", list_benchmarks())
def test_a_row_says_what_the_file_says(name):
    benchmark, (_, get, layout, size, checked, command) = load_benchmark(name), ROWS[name].strip("| ").split(" | ")
    bundled = benchmark.data["format"] in BUNDLED
    assert command.startswith(f"`seqdg bench {name}{'' if bundled else ' --data DIR'}")
    assert ("--weights" in command) == (benchmark.net.pretrained and benchmark.net.name != "efficientnet-lite0")
    assert ("comes with seqdg" in get) == bundled
    if bundled:
        return
    spec = DataSpec.from_table(name, benchmark.data)
    assert spec.get, "the file says where to get it"
    if not get.startswith("as `"):
        assert any(Path(path).parts[0].split(".")[0].lower() in layout.lower() for path in spec.path if path != ".")
    assert ("fingerprint" in checked) == bool(spec.fingerprint)
    assert ("counts" in checked) == bool(spec.counts)
    total, classes = sum(spec.counts.values()), len(spec.classes) or spec.class_count
    if not size.startswith(("as `", "the same")):
        assert f"{total:,}" in size or not spec.counts or set(spec.counts) != set(spec.domains)
        what = "a regression target" if spec.is_regression else rf"\b{classes}\b (of the |classes|activities)"
        assert re.search(what, size), size
        assert (
            re.search(rf"\b{len(spec.domains)}\b (domains|places|cars|people|stations|cameras)", size)
            or not spec.domains
        )
