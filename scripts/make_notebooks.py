"""Run the notebooks of docs/notebooks and keep their outputs: `python scripts/make_notebooks.py [NAME ...]`.

Each also becomes a page of the docs, NAME.md, with its figures beside it as SVG. A test checks that the pages are those
of the notebooks, and that every cell runs. Needs `pip install '.[notebooks]'`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
SVG, TEXT = "image/svg+xml", "text/plain"
FONTS = "Liberation Sans, Arial, Helvetica, sans-serif"  # as wide as that by which Altair measured
ROOM = 16  # at the sides, for names in a wider one


def run(path: Path) -> None:
    """Execute a notebook, and write it again with its outputs. The files that it makes are removed."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as scratch:
        here = FOLDER if "../results" in path.read_text(encoding="utf-8") else Path(scratch)
        NotebookClient(
            notebook,
            timeout=600,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(here)}},
        ).execute()
    for cell in notebook.cells:
        cell["outputs"] = [_shrink(output) for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        if cell.cell_type != "code":
            del cell["outputs"]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(notebook, path)


def _shrink(output: Any) -> Any:
    """Keep a figure as SVG, and of anything else its text."""
    if "data" in output:
        kept = SVG if SVG in output["data"] else TEXT
        output["data"] = {kept: _widen(output["data"][kept]) if kept == SVG else output["data"][kept]}
        output["metadata"] = {}
    return output


def _widen(picture: str) -> str:
    """Name the fonts of a picture, and leave room at its sides: no name is cut where another font is wider."""
    picture = picture.replace('font-family="sans-serif"', f'font-family="{FONTS}"')
    size = re.search(r'width="(\d+)" height="(\d+)" viewBox="0 0 \1 \2"', picture)
    if size is None:
        return picture
    width, height = int(size[1]) + 2 * ROOM, size[2]
    return picture.replace(size[0], f'width="{width}" height="{height}" viewBox="-{ROOM} 0 {width} {height}"')


def make_page(path: Path) -> dict[str, str]:
    """Return the page of a notebook and its figures, by file."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    files: dict[str, str] = {}
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).strip()
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if SVG in data:
                file = f"{path.stem}-{len(files) + 1}.svg"
                files[file] = "".join(data[SVG]).strip() + "\n"
                parts.append(f"![What the code above draws]({file})")
            else:
                text = re.sub(r"[ \t]+$", "", "".join(output.get("text", data.get(TEXT, ""))).strip("\n"), flags=re.M)
                parts.append(f"```text\n{text}\n```")
    title, _, rest = "\n\n".join(parts).partition("\n")
    made = f"*[The notebook]({path.name}), run as it stands here; `python scripts/make_notebooks.py` runs it again.*"
    files[f"{path.stem}.md"] = f"{title}\n\n{made}\n{rest}\n"
    return files


if __name__ == "__main__":
    for notebook in [FOLDER / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        run(notebook)
        for name, text in make_page(notebook).items():
            (FOLDER / name).write_text(text, encoding="utf-8")
            print(FOLDER / name)
