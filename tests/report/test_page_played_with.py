"""The report's page in a real browser, played with by mouse and by keyboard alone."""

from __future__ import annotations

import base64
import gzip
import json
import time

import pytest

from browsing import set_looks, wait_until
from seqdg.report.page import build_page, render_page
from seqdg.report.run_contents import RunContents
from seqdg.report.sheet import build_sheet

pytest.importorskip("altair", reason="The page's figures need altair.")
VALUES = {
    "agg": {"V": [0.50, 0.52, 0.54, 0.51, 0.53, 0.52], "L": [0.60, 0.61, 0.62, 0.63, 0.64, 0.65]},
    "mldg": {"V": [0.70, 0.71, 0.75, 0.72, 0.73, 0.72], "L": [0.50, 0.51, 0.52, 0.53, 0.54, 0.55]},
    "dann": {"V": [0.40, 0.42, 0.41, 0.41, 0.43, 0.42], "L": [0.55, 0.56, None, 0.57, 0.58, 0.59]},
}


@pytest.fixture(scope="module")
def records(make_run):
    return make_run(VALUES)


@pytest.fixture(scope="module")
def page(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(build_page(RunContents("vlcs", records), every_choice=True)), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, page):
    set_looks(browser, 1280, 844, "light")  # whatever another test has left
    browser.get_log("browser")
    browser.get(page.as_uri())
    browser.execute_script("sessionStorage.clear()")
    browser.get(page.as_uri())
    wait_until(browser, "return document.documentElement.dataset.drawn > 0")
    yield browser
    assert browser.get_log("browser") == []


def find(opened, selector: str):
    return opened.find_element("css selector", selector)


def press(opened, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(opened).send_keys(*keys).perform()


def tab_to(opened, condition: str, most: int = 120) -> None:
    """Press Tab until the focused element fulfils the condition; what is focused is seen to be."""
    for _ in range(most):
        press(opened, "\ue004")
        if opened.execute_script(f"const e = document.activeElement; return {condition}"):
            outline = opened.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none"
            return
    pytest.fail(f"Tab reaches nothing with {condition}.")


def choose(opened, name: str, value: str) -> None:
    before = opened.execute_script("return document.documentElement.dataset.drawn")
    from selenium.webdriver.support.select import Select

    Select(find(opened, f"select[name={name}]")).select_by_value(value)
    wait_until(opened, f"return document.documentElement.dataset.drawn > {before}")


def cells(opened) -> dict[str, str]:
    """Of the table of results: by algorithm, what its row says."""
    rows = opened.execute_script(
        "const rows = [...document.querySelector('#results tbody').rows];"
        "return rows.map(r => [...r.cells].map(c => c.textContent.trim()))"
    )
    return {name: " | ".join(said).replace(" (best)", "") for name, *said in rows}


@pytest.mark.slow
def test_every_criterion_rule_and_baseline_shows_what_the_table_command_prints(opened, records):
    for select, criterion, baseline in (
        ("last", "log_loss", "mldg"), ("oracle", "balanced_accuracy", "dann"), ("source-val", "accuracy", "agg"),
    ):  # fmt: skip
        for name, value in (("select", select), ("criterion", criterion), ("baseline", baseline)):
            choose(opened, name, value)
        sheet = build_sheet(records, select, criterion, baseline)
        shown = cells(opened)
        for name in sheet.columns:
            said = shown[name].split(" | ")
            assert said[:-1] == [sheet.value(row, name) for row in sheet.rows]
        assert find(opened, "[data-part=lead]").text == sheet.footnote
        assert find(opened, "#differences h3").text == f"Against {baseline}"
        verdicts = [x.verdict for x in sheet.paired]
        assert [
            row.text for row in opened.find_elements("css selector", "#differences tbody td:last-child")
        ] == verdicts


def test_a_name_is_followed_through_every_figure_and_table_from_either(opened):
    faded = (
        "[...document.querySelectorAll('#results .chart')].map(c => "
        "[...c.querySelectorAll('.mark-symbol.role-mark path')].map(p => Number(p.getAttribute('opacity') ?? 1)))"
    )
    find(opened, "#results tbody button.follow[data-name=mldg]").click()
    wait_until(opened, f"return {faded}.every(o => o.filter(v => v < 1).length === 2)")
    assert find(opened, ".bar button.follow[data-name=mldg]").get_attribute("aria-pressed") == "true"
    assert "followed" in find(opened, "#results tr[data-of=mldg]").get_attribute("class")
    find(opened, "#training .legend button.follow[data-name=mldg]").click()
    wait_until(opened, f"return {faded}.every(o => o.every(v => v === 1))")
    assert find(opened, ".bar button.follow[data-name=mldg]").get_attribute("aria-pressed") == "false"


def test_what_is_hidden_is_drawn_nowhere_and_comes_back(opened):
    count = (
        "return document.querySelectorAll('#results .chart')[0].querySelectorAll('.mark-symbol.role-mark path').length"
    )
    assert opened.execute_script(count) == 3
    find(opened, "input.show[data-name=dann]").click()
    wait_until(opened, f"{count} === 2")
    find(opened, "input.show[data-name=dann]").click()
    wait_until(opened, f"{count} === 3")


def test_tables_are_sorted_by_any_column_and_back(opened):
    head = find(opened, "#results thead th:nth-child(2) button")
    for order, names in (("descending", ["mldg", "agg", "dann"]), ("ascending", ["dann", "agg", "mldg"])):
        head.click()
        assert list(cells(opened)) == names
        assert find(opened, "#results thead th:nth-child(2)").get_attribute("aria-sort") == order
    assert "Sorted by V, ascending." in find(opened, "#said").get_attribute("textContent")


def test_a_cell_says_its_trials_when_pointed_at(opened):
    from selenium.webdriver.common.action_chains import ActionChains

    cell = find(opened, "#results tr[data-of=dann] td:nth-child(3)")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", cell)
    opened.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 100))")  # scrolling hides it
    ActionChains(opened).move_to_element(cell).perform()
    wait_until(opened, "return !document.getElementById('tip').hidden")
    said = find(opened, "#tip").text
    assert "0: 55.0" in said
    assert "2: diverged" in said


def test_tables_are_saved_as_csv_and_latex(opened):
    saved = """
    const [kind, done] = arguments;
    HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; };
    URL.createObjectURL = (blob) => { blob.text().then(text => done([window.savedAs, text])); return "data:,"; };
    document.querySelector(`#results [data-save=${kind}]`).click();
    """
    name, text = opened.execute_async_script(saved, "csv")
    assert name.endswith(".csv")
    lines = text.splitlines()
    assert lines[0] == "algorithm,V,L,average,worst,trials"
    assert lines[1].startswith("agg,52.0 ± 0.6,62.5 ± 0.8,")
    name, text = opened.execute_async_script(saved, "latex")
    assert name.endswith(".tex")
    assert text.startswith(
        "\\begin{tabular}{lrrrrr}\n\\toprule\nalgorithm & V & L & average & worst & trials \\\\\n\\midrule\n"
    )
    assert "mldg & \\textbf{72.2 $\\pm$ 0.7} &" in text


def test_every_control_works_by_keyboard_alone(opened):
    before = opened.execute_script("return document.documentElement.dataset.drawn")
    tab_to(opened, "e.name === 'criterion'")
    press(opened, "\ue015")  # arrow down
    wait_until(opened, f"return document.documentElement.dataset.drawn > {before}")
    assert "Balanced accuracy" in find(opened, "[data-part=lead]").text
    assert opened.execute_script("return document.activeElement.name") == "criterion"
    tab_to(opened, "e.matches('input.show') && e.dataset.name === 'agg'")
    press(opened, " ")
    assert opened.execute_script("return !document.activeElement.checked")
    press(opened, " ")
    tab_to(opened, "e.matches('.follow') && e.dataset.name === 'mldg'")
    press(opened, "\ue007")
    assert opened.execute_script("return document.activeElement.getAttribute('aria-pressed')") == "true"
    press(opened, "\ue00c")  # Escape
    assert opened.execute_script("return document.activeElement.getAttribute('aria-pressed')") == "false"
    tab_to(opened, "e.matches('#results .sort')")
    press(opened, "\ue007")
    assert opened.execute_script("return document.activeElement.closest('th').ariaSort") == "descending"
    tab_to(opened, "e.matches('#results td[data-tip]')")
    assert "By seed" in find(opened, "#tip").text
    was = opened.execute_script("return document.activeElement.cellIndex")
    press(opened, "\ue014")  # arrow right
    assert opened.execute_script("return document.activeElement.cellIndex") == was + 1
    tab_to(opened, "e.matches('#results [data-save=csv]')")
    tab_to(opened, "e.matches('#training .chart')")
    ends = (
        "const labels = [...document.activeElement.querySelectorAll('.role-axis-label text')];"
        "return labels.map(t => t.textContent).sort().join(' ')"
    )
    whole = opened.execute_script(ends)
    press(opened, "+")
    wait_until(opened, f"const now = (() => {{ {ends} }})(); return now !== {json.dumps(whole)}")
    press(opened, "0")
    wait_until(opened, f"const now = (() => {{ {ends} }})(); return now === {json.dumps(whole)}")


def test_what_was_chosen_outlives_a_reload(opened):
    choose(opened, "baseline", "mldg")
    find(opened, ".bar button.follow[data-name=dann]").click()
    opened.refresh()
    wait_until(opened, "return document.documentElement.dataset.drawn > 0")
    assert find(opened, "select[name=baseline]").get_attribute("value") == "mldg"
    assert find(opened, "#differences h3").text == "Against mldg"
    assert find(opened, ".bar button.follow[data-name=dann]").get_attribute("aria-pressed") == "true"


def test_the_name_of_a_row_stands_level_with_its_numbers_and_below_its_heading(opened):
    edges = opened.execute_script("""
        const box = (cell) => { const text = document.createRange(); text.selectNodeContents(cell);
          const { left, bottom } = [...text.getClientRects()].pop(); return { left, bottom }; };
        const head = box(document.querySelector('#results thead th .name'));
        return [...document.querySelectorAll('#results tbody tr')].map(row =>
          [box(row.cells[0].querySelector('.name')), box(row.cells[row.cells.length - 1]), head]);""")
    for name, number, head in edges:
        assert name["bottom"] == pytest.approx(number["bottom"], abs=1)
        assert name["left"] == pytest.approx(head["left"], abs=1)


def test_controls_have_names_for_screen_readers(opened):
    nameless = opened.execute_script(
        "return [...document.querySelectorAll('button, select, input, [tabindex]')].filter(e => "
        "!(e.innerText || e.ariaLabel || e.closest('label')?.innerText || e.textContent).trim()).map(e => e.outerHTML)"
    )
    assert nameless == []


@pytest.mark.slow
def test_a_watched_page_shows_the_next_version_and_keeps_what_was_chosen(browser, records, tmp_path):
    path = tmp_path / "report.html"
    half = [r for r in records if r.seed < 3]
    path.write_text(render_page(build_page(RunContents("vlcs", half), every_choice=True), "one"), encoding="utf-8")
    (tmp_path / "report.html.version.js").write_text('seqdgVersion("one");')
    browser.get(path.as_uri())
    wait_until(browser, "return document.documentElement.dataset.drawn > 0")
    choose(browser, "baseline", "mldg")
    path.write_text(render_page(build_page(RunContents("vlcs", records), every_choice=True)), encoding="utf-8")
    (tmp_path / "report.html.version.js").write_text('seqdgVersion("two");')
    wait_until(browser, "return document.querySelector('[data-part=lead]').innerText.includes('over 5 to 6 trials')")
    wait_until(browser, "return document.documentElement.dataset.drawn > 0")
    assert find(browser, "select[name=baseline]").get_attribute("value") == "mldg"
    assert find(browser, "#differences h3").text == "Against mldg"


def test_what_the_script_reads_is_plain_json_once_unpacked(page):
    letters = page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    known = json.loads(gzip.decompress(base64.b64decode(letters)))
    assert set(known) == {"charts", "panels", "fragments", "choices", "version", "first"}
    assert len(known["choices"]) == 3 * 4 * 3  # rules that the run has, criteria, baselines


@pytest.mark.slow
def test_a_page_of_thirteen_algorithms_is_under_two_megabytes_and_opens_soon(browser, make_run, tmp_path):
    domains = {f"domain {d}": [0.5 + d / 40 + s / 1000 for s in range(20)] for d in range(4)}
    values = {f"algorithm-{a}": domains for a in range(13)}
    path = tmp_path / "report.html"
    path.write_text(render_page(build_page(RunContents("many", make_run(values)), every_choice=True)), encoding="utf-8")
    assert path.stat().st_size < 2_000_000
    begun = time.monotonic()
    browser.get(path.as_uri())
    wait_until(browser, "return performance.getEntriesByName('near').length > 0")
    print(f"{path.stat().st_size} bytes, {time.monotonic() - begun:.2f} s until all that is in sight is drawn")
