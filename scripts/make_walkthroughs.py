"""Run the walk-throughs of the docs again, and write what they print today into their pages.

    python scripts/make_walkthroughs.py                    # all
    python scripts/make_walkthroughs.py tabular.md

Every block of code runs in order in an empty folder; the block of text after it becomes what it printed. Read the
difference before you keep it: sentences around a block may speak of its figures.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from following import follow  # noqa: E402
from pages import BLOCK, WALKTHROUGHS, Block  # noqa: E402


def remake(page: Path, folder: Path) -> None:
    here, tools = folder / "here", folder / "tools"
    here.mkdir()
    text, printed, parts, end = page.read_text(encoding="utf-8"), "", [], 0
    for match in BLOCK.finditer(text):
        language, title, block = match.groups()
        if language == "text":
            block = printed
        elif 'title="needs ' not in title:
            printed = follow(Block(language, title, block, ""), here, tools)
        parts += [text[end : match.start()], f"```{language}{title}\n{block}```"]
        end = match.end()
    page.write_text("".join(parts) + text[end:], encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or WALKTHROUGHS:
        with tempfile.TemporaryDirectory() as folder:
            remake(ROOT / "docs" / name, Path(folder))
