"""What users read is in the field's words: pages, help, messages and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages import PAGES, ROOT

CODE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)\s]*\)|https?://\S+", re.MULTILINE | re.DOTALL)
WORDS = {  # what we once wrote, and what the field says
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bgaps\b|\b(no|a|\d+) gap in\b": "missing value",
    r"\b(hears?|heard)\b": "gets",
    r"\b(was|were) (seen, and )?not shown\b|\bseen, and not shown\b": "not significant",
    r"\bnumbers? to predict\b|\bnumbers? (is|are) predicted\b|\bpredicts? numbers\b": "regression, target",
    r"\btells?\b[^.\n]{0,40}\bclasses apart\b|\bclasses to tell apart\b": "classifier, classification",
    r"\bcolumns? of words\b|\}\} of words\b": "categorical",
    r"\b(minutes|seconds|time) (is|are) over\b": "has elapsed",
    r"(?<!visual )\bwords (are|or|as) (categories|categorical|numbers)|\b(categor\w+|numbers) (and|or|are) words\b": (
        "categories, text"
    ),
    r", and \S+ is none[:.]|\bis none by its name\b": "is not one",
    r"\bfor who knows\b": "if you know",
    r"\bbrings? \S+ along\b": "installs",
}  # fmt: skip
NETWORKS = r"(?<![\w./-])nets(?![\w/.])"  # `Net` is a class; the prose says network
SOURCES = sorted((ROOT / "src" / "seqdg").rglob("*.py"))
TEMPLATES = sorted((ROOT / "src" / "seqdg").rglob("*.jinja"))


def find(pattern: str, text: str) -> list[str]:
    return [text[max(0, m.start() - 40) : m.end() + 40].replace("\n", " ") for m in re.finditer(pattern, text)]


def list_texts(path: Path) -> Iterator[str]:
    """Docstrings and messages of a module: its strings of more than one word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield CODE.sub("", node.value)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_is_in_the_words_of_the_field(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    assert {word: found for pattern, word in WORDS.items() if (found := find(pattern, text))} == {}


def test_docstrings_and_messages_are_in_the_words_of_the_field() -> None:
    wrong = [
        (path.relative_to(ROOT).as_posix(), word, found)
        for path in SOURCES
        for text in list_texts(path)
        for pattern, word in {**WORDS, NETWORKS: "network"}.items()
        if (found := find(pattern, text))
    ]
    assert wrong == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_card_or_a_report_is_in_the_words_of_the_field(template: Path) -> None:
    text = template.read_text(encoding="utf-8")
    assert {word: found for pattern, word in WORDS.items() if (found := find(pattern, text))} == {}


@pytest.mark.parametrize(
    "text",
    ["Mend it.", "3 gaps in column a", "It was seen, and not shown.", "a number to predict", "The minutes are over."],
)
def test_the_words_that_we_once_wrote_are_found(text: str) -> None:
    assert any(find(pattern, text.lower()) for pattern in WORDS)
