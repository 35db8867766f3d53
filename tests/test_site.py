"""The docs as a site: every page is reached, every link and anchor leads somewhere, every name is documented."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import seqdg
from browsing import list_requests, open_browser, set_looks, wait_until
from pages import PAGES, ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def read_config() -> Any:
    """mkdocs.yml; what MkDocs alone can construct is left out."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)  # type: ignore[attr-defined]
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=loader)


def list_files(nav: Any) -> Iterator[str]:
    for entry in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else [nav]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from list_files(entry)


def list_anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub and MkDocs make them where both agree."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    return named | {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_page_is_in_the_navigation_once() -> None:
    files = list(list_files(read_config()["nav"]))
    written = {
        str(p.relative_to(ROOT / "docs")) for p in PAGES if (ROOT / "docs") in p.parents and p.parent.name != "tables"
    }
    assert len(files) == len(set(files))
    assert set(files) == written | {"contributing.md", "changelog.md", "commands.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path, request: pytest.FixtureRequest) -> None:
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        if path.endswith(".parquet"):
            request.getfixturevalue("published_runs")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        target = target / "README.md" if target.is_dir() else target
        if anchor:
            assert anchor in list_anchors(target), link


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent.name != "tables"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_a_page_has_one_title_and_its_headings_are_in_order(page: Path) -> None:
    levels = [
        len(marks) for marks in re.findall(r"^(#+) ", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(lower <= upper + 1 for upper, lower in itertools.pairwise(levels))


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: seqdg\.(\w+)$", text, re.MULTILINE)) | set(re.findall(r"`seqdg\.(\w+)` is", text))
    assert shown == set(seqdg.__all__)


@pytest.mark.parametrize("drawing", sorted((ROOT / "docs" / "drawings").glob("*.svg")), ids=lambda path: path.stem)
def test_a_drawing_is_shown_has_a_title_and_dark_colors(drawing: Path) -> None:
    text = drawing.read_text(encoding="utf-8")
    assert f'aria-labelledby="{drawing.stem}-title"><' in text.replace("\n", "")
    assert "prefers-color-scheme: dark" in text
    assert any(f"drawings/{drawing.name}" in page.read_text(encoding="utf-8") for page in PAGES)


def test_the_pictures_of_the_front_page_are_current(script: Any, published_runs: Path) -> None:
    front = script("make_front")
    again = "Run: python scripts/make_front.py"
    for layout in (front.DESK, front.PHONE):
        drawing = front.DRAWINGS / f"{layout.name}.svg"
        assert drawing.read_text(encoding="utf-8") == front.draw_leaderboard(layout), again
    printed = (front.PICTURES / "terminal.txt").read_text(encoding="utf-8")
    assert (front.PICTURES / "terminal.svg").read_text(encoding="utf-8") == front.draw_terminal(printed), again
    assert printed[printed.index("held out") : printed.index("Next:")].strip() in (
        ROOT / "docs" / "get-started.md"
    ).read_text(encoding="utf-8")


def test_the_gallery_shows_what_its_examples_draw() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    drawn = re.findall(r'"(gallery-\w+\.svg)"', page)
    assert len(drawn) == 5
    assert re.findall(r"\]\(pictures/(gallery-\w+\.svg)\)", page) == drawn


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/engineer.md", "docs/choosing.md"])
def test_how_often_intervals_hold_is_said_as_the_table_has_it(name: str) -> None:
    table = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8").partition("### Coverage on real sets")[2]
    rows = re.findall(r"^\| ([\w' ]+) \| \d \| (\d+) \| ([\d.]+) \|", table, re.MULTILINE)
    assert len(rows) == 9
    cases = sum(int(n) for _, n, _ in rows)
    mean = sum(int(n) * float(within) for _, n, within in rows) / cases
    said = (ROOT / name).read_text(encoding="utf-8")
    assert f"{mean:.1f} % of {cases:,} cases" in said
    assert f"on the worst set in {min(float(within) for *_, within in rows):.1f} %" in said


def test_scores_on_known_and_new_sites_are_those_of_the_records(published_runs: Path) -> None:
    """docs/why-not.md says what validation rows of known sites promise."""
    page = (ROOT / "docs" / "why-not.md").read_text(encoding="utf-8")
    for name in (
        "wisdm",
        "pacs-features",
        "office-caltech10",
        "digits",
        "amazon-reviews",
        "beijing-air",
        "pacs-dinov2",
    ):
        cells = [name]
        for kind, algorithm in (("classic", "random-forest"), ("classic", "logistic"), ("momentum", "agg")):
            rows = seqdg.Results.open(published_runs / "study" / name / kind).frame(select="source-val")
            rows = rows[rows["algorithm"] == algorithm].groupby("held_out")[["source_accuracy", "accuracy"]].mean()
            cells += [f"{100 * value:.1f}" for value in rows.mean()]
        assert f"| {' | '.join(cells)} |" in page


def test_settings_in_docstrings_become_lists(script: Any) -> None:
    pytest.importorskip("griffe", reason="The site's tools are not installed: pip install '.[docs]'.")
    lists = script("site/docstrings").list_entries
    text = "net: 'mlp' or yours.   hidden: its\n    widths.\nsteps, batch: of training."
    assert lists(text) == "- `net`: 'mlp' or yours.\n- `hidden`: its widths.\n- `steps`, `batch`: of training."
    assert lists("After `fit` it: is not one of these.") == "After `fit` it: is not one of these."
    assert lists("    m = d * m") == "    m = d * m"


def test_parameters_with_one_description_have_an_entry_each(script: Any) -> None:
    pytest.importorskip("griffe", reason="The site's tools are not installed: pip install '.[docs]'.")
    split = script("site/docstrings").split_names
    text = "Parameters\n---\nlr, momentum : float\n    Of the optimizer.\n    More.\nsteps : int\n    Of training."
    entry = "{} : float\n    Of the optimizer.\n    More.\n"
    own = entry.format("lr") + entry.format("momentum")
    assert split(text) == f"Parameters\n---\n{own}steps : int\n    Of training."


def test_a_number_and_its_error_stay_on_one_line(script: Any) -> None:
    pytest.importorskip("mkdocs", reason="The site's tools are not installed: pip install '.[docs]'.")
    finish = script("site/pages").on_page_content
    assert (
        finish("<td>79.3 ± 1.1</td>, mean ± standard error", None)
        == "<td>79.3&nbsp;±&nbsp;1.1</td>, mean ± standard error"
    )


def test_the_check_of_a_site_notices_what_is_wrong(script: Any, tmp_path: Path) -> None:
    check = script("site/check").check
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#here">b</a><a href="https://example.org">out</a>'
    )
    (tmp_path / "b.html").write_text('<h2 id="here"></h2><a href="a.html#top"></a><script src="s.js"></script>')
    (tmp_path / "s.js").touch()
    assert check(tmp_path) == []
    (tmp_path / "b.html").write_text('<a href="c.html"></a><script src="https://example.org/s.js"></script>')
    (tmp_path / "s.css").write_text("@import 'https://example.org/font.css'; p { background: url(data:x) }")
    wrong = check(tmp_path)
    assert len(wrong) == 4
    assert "a.html links to b.html#here, but that page has no such anchor" in wrong
    assert "b.html fetches https://example.org/s.js" in wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built."""
    pytest.importorskip("material", reason="The site's tools are not installed: pip install '.[docs]'.")
    folder: Path = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.soak
def test_every_link_of_the_site_leads_somewhere_and_nothing_is_fetched(site: Path, script: Any) -> None:
    assert script("site/check").check(site) == []


@pytest.mark.soak
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_in_a_browser_and_the_search_finds(site: Path, width: int, scheme: str) -> None:
    with open_browser() as browser:
        set_looks(browser, width, 900, scheme)
        for page in sorted(site.rglob("*.html")):
            if page.name == "404.html" or {"source", "tables"} & set(page.parts):
                continue
            browser.get(page.as_uri())
            wide = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{page.name} is {wide} pixels wider than the window"
        shown = browser.execute_script("return document.body.dataset.mdColorScheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
        browser.get((site / "index.html").as_uri())
        write = (
            "const field = document.querySelector('input.md-search__input'); field.focus(); field.value = 'averaging';"
        )
        browser.execute_script(write + "field.dispatchEvent(new Event('keyup'))")
        wait_until(browser, "return document.querySelectorAll('.md-search-result__item').length > 3")
        elsewhere = [u for u in list_requests(browser) if not u.startswith(("file:", "data:", "about:", "blob:"))]
        assert elsewhere == []
        assert not browser.get_log("browser")
