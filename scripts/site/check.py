"""Look at a built site: `python scripts/site/check.py site`. Every link leads somewhere, and no page fetches anything.

MkDocs checks the links of Markdown; this reads the pages as a browser does, what the theme and mkdocstrings add
included. A link to another host is allowed; a script, style, font or picture from there is not.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "use": "href"}
IMPORTED = re.compile(r"(?:@import\s+|url\()['\"]?(?:https?:)?//[^)'\"]+")


class Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.fetched = set[str](), set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to and fetches."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if FETCHED.get(tag) in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.add(values[FETCHED[tag]])


def check(site: Path) -> list[str]:
    """Return a sentence for everything that is wrong."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if name.name == "404.html":  # its links start at the root of a server
            continue
        wrong += [f"{name} fetches {url}" for url in sorted(page.fetched) if _is_elsewhere(url)]
        for url in sorted(page.links | page.fetched):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                wrong.append(f"{name} links to {url}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{name} links to {url}, but that page has no such anchor")
    for path in sorted(site.rglob("*.css")):
        found = IMPORTED.findall(path.read_text(encoding="utf-8"))
        wrong += [f"{path.relative_to(site)} fetches {url}" for url in found]
    return wrong


def _is_elsewhere(url: str) -> bool:
    return bool(urlsplit(url).netloc)


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "Every link leads somewhere, and no page fetches anything from elsewhere.")
    raise SystemExit(bool(found))
