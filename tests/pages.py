"""The pages of the docs, and the code in them: read by the tests that run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
)
BLOCK = re.compile(r"^```(\w*)([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

GUIDES = ["bring-your-own-domains.md"]  # test_guides.py runs these word for word
WALKTHROUGHS = ["tabular.md", "images.md", "regression.md"]  # test_walkthroughs.py, with what they print
COMMANDS = ["get-started.md", "running.md"]  # test_code_blocks.py: shortened, and in a soak word for word
PYTHON = ["README.md", "docs/researcher.md", "docs/engineer.md", "docs/paper.md", "docs/report.md"]  # it, too
GALLERY = "docs/gallery.md"  # it, too; and scripts/make_front.py, which keeps its pictures
EXAMPLES = "CONTRIBUTING.md"  # algorithms, wrappers and learners: it, too


class Block(NamedTuple):
    """A block of code or output: its language, its title (`needs a GPU`), its text and the sentence before it."""

    language: str
    title: str
    text: str
    before: str

    @property
    def file(self) -> str:
        """The name under which the sentence before it says to save it."""
        named = re.search(r"`([\w.-]+)`[^`]*:$", self.before)
        saved = re.search(r"\b[Ss]ave\s+this\s+as\b", self.before)
        return named[1] if named is not None and saved is not None else ""

    @property
    def needs(self) -> str:
        """What a reader must have to run it: a GPU, a data set, a checkout."""
        return self.title.removeprefix("needs ") if self.title.startswith("needs ") else ""


def list_blocks(page: Path) -> list[Block]:
    text, end, found = page.read_text(encoding="utf-8"), 0, []
    for match in BLOCK.finditer(text):
        title = re.search(r'title="([^"]*)"', match[2])
        found.append(Block(match[1], title[1] if title else "", match[3], text[end : match.start()].strip()))
        end = match.end()
    return found
