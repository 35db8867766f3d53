"""Hooks of MkDocs: the address of the repository, pages that lie outside docs/, and links to them.

CONTRIBUTING.md and CHANGELOG.md are pages too, and so is the help of every command. Published tables get a title.
A file of the repository that a page links to (code, a test, a benchmark) becomes a page that shows it. So every link
of the docs works in the repository and on the site, and `strict` notices one that leads nowhere.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from seqdg.base.fields import tomllib

ROOT = Path(__file__).parents[2]
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
IMAGE = re.compile(r'<img [^>]*src="[^"]*drawings/([\w-]+\.svg)"[^>]*>')
CLASS = re.compile(r'class="([^"]*)"')
PICTURE = re.compile(r'<img [^>]*src="(?![^"]*drawings/)[^"]*\.svg"[^>]*>')
ERROR = re.compile(r"(?<=\d) ± (?=\d)")
LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".yml": "yaml"}
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_config(config: Any) -> Any:
    """Typeset blocks of LaTeX as MathML, which browsers show without a script. Link to the repository where
    pyproject.toml names one."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "math", "format": _typeset})
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.repo_url = project["urls"].get("Source") or None
    return config


def _typeset(source: str, *_: Any, **__: Any) -> str:
    from latex2mathml.converter import convert

    return f'<div class="math">{convert(source, display="block")}</div>'


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of CONTRIBUTING.md, CHANGELOG.md and of every file that a page links to."""
    pages = {file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()}
    for source, page in OUTSIDE.items():
        if page not in pages:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
            pages[page] = source
    files.append(File.generated(config, "commands.md", content=_describe_commands()))
    linked = {found for source in pages.values() for found in _list_sources(source)}
    for path in sorted(linked):
        files.append(File.generated(config, _name_source(path), content=_show_source(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where their targets are on the site."""
    here = page.file.src_uri
    source = next(
        (name for name, page_path in OUTSIDE.items() if page_path == here and here != "index.md"), f"docs/{here}"
    )
    if here == "changelog.md":  # it stands alone
        page.meta["hide"] = ["navigation"]
    if re.fullmatch(r"results/[^/]+/tables/[^/]+", here):
        markdown = _title_table(markdown, here)
    return LINK.sub(lambda found: _follow(found, source, here), markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Draw the drawings on the page itself, so that they follow its light and dark; wide pictures scroll on a phone. A
    number and its error stay on one line."""
    html = ERROR.sub("&nbsp;±&nbsp;", html)
    html = PICTURE.sub(lambda found: f'<span class="picture">{found[0]}</span>', html)
    return IMAGE.sub(lambda found: _inline(found[1], CLASS.search(found[0])), html)


def _inline(name: str, classes: re.Match[str] | None) -> str:
    """Return a drawing whose style holds for it alone, and whose dark colors are those of the dark page."""
    drawing = (ROOT / "docs" / "drawings" / name).read_text(encoding="utf-8")
    style = drawing.partition("<style>")[2].partition("</style>")[0]
    dark = style.replace("@media (prefers-color-scheme: dark) {", '} [data-md-color-scheme="slate"] .drawing {')
    kind = f"drawing {classes[1]}" if classes else "drawing"
    return f'<div class="{kind}">{drawing.replace(style, " .drawing {" + dark + "} ")}</div>'


def _describe_commands() -> str:
    """Return the page of the command line: what every command prints with `--help`."""
    import typer.main

    from seqdg.cli import app

    group: Any = typer.main.get_command(app)
    parts = ["# Command line", "What every command prints with `--help`."]
    for name, command in group.commands.items():
        context = command.context_class(command, info_name=f"seqdg {name}", terminal_width=100, max_content_width=100)
        parts += [f"## {name}", f"```text\n{command.get_help(context)}\n```"]
    return "\n\n".join(parts)


def _title_table(markdown: str, here: str) -> str:
    _, run, _, name = here.split("/")
    command, _, table = markdown.removeprefix("<!-- ").partition(" -->")
    title = name.removesuffix(".md").replace("-", " ")
    return f"# {run}: {title}\n\n[All of {run}](../README.md)\n\n```sh\n{command}\n```\n{table}"


def _follow(found: re.Match[str], source: str, here: str) -> str:
    """Return the link from the page `here`, whose text is the file `source`, to the same target on the site."""
    before, target, anchor, after = found[1], found[2], found[3] or "", found[4]
    path = _resolve(target, source)
    if path is None or here.startswith("source/"):
        return found[0]
    goal = _find_page(path)
    return f"{before}{os.path.relpath(goal, posixpath.dirname(here) or '.')}{anchor}{after}"


def _resolve(target: str, source: str) -> str | None:
    """Return the path in the repository, or nothing for addresses and for what does not exist."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return None if "://" in target or target.startswith("mailto:") or not (ROOT / path).exists() else path


def _find_page(path: str) -> str:
    if path in OUTSIDE:
        return OUTSIDE[path]
    if (ROOT / path).is_dir() and (ROOT / path / "README.md").exists():
        path = f"{path}/README.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else _name_source(path)


def _name_source(path: str) -> str:
    return f"source/{path}.md"


def _list_sources(source: str) -> set[str]:
    """Return the files outside docs/ that a page links to."""
    text = (ROOT / source).read_text(encoding="utf-8")
    found = (_resolve(link[2], source) for link in LINK.finditer(text))
    return {path for path in found if path is not None and _find_page(path).startswith("source/")}


def _show_source(path: str) -> str:
    file = ROOT / path
    if file.is_dir():
        names = sorted(p.name for p in file.iterdir() if not p.name.startswith(("_", ".")))
        return f"{UNSEARCHED}# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = file.read_text(encoding="utf-8")
    fence = "`" * 5
    return f"{UNSEARCHED}# {path}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
