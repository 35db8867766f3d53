"""The code of a user's own class as text: whether it has changed since its trials were trained."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from types import FunctionType

PACKAGE = __name__.partition(".")[0]


def is_own(kind: type) -> bool:
    """Say whether a class is the user's own, and not one of this package."""
    return kind.__module__.partition(".")[0] != PACKAGE


def read_source(kind: type) -> str:
    """Return the code of a class and of everything that it names in the same file, directly or through others.

    Comments, docstrings and layout are left out, and so is what the file imports. Empty where there is no code to read.
    """
    try:
        text = inspect.getsource(sys.modules[kind.__module__])
    except (OSError, TypeError, KeyError):  # a class of a notebook has no file, but its methods have code
        return "\n".join(_read_methods(kind))
    return _extract(text, kind.__qualname__.partition(".")[0])


def is_same(code: str, other: str) -> bool:
    """Say whether two texts of `read_source` are the same code, even if two versions of Python wrote them."""
    return code == other or ast.dump(ast.parse(code)) == ast.dump(ast.parse(other))


def _extract(text: str, name: str) -> str:
    """Extract the statements of a file that a name needs, in the order of the file."""
    statements = ast.parse(text).body
    needed: set[int] = set()
    names = [name]
    while names:
        wanted = names.pop()
        for i, statement in enumerate(statements):
            if i not in needed and wanted in _list_defined(statement):
                needed.add(i)
                names += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return "\n".join(ast.unparse(_strip_docstrings(statements[i])) for i in sorted(needed))


def _list_defined(statement: ast.stmt) -> set[str]:
    """List the names that a statement of a file defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _strip_docstrings(statement: ast.stmt) -> ast.stmt:
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return statement


def _read_methods(kind: type) -> Iterator[str]:
    for member in vars(kind).values():
        if isinstance(member, FunctionType) and member.__module__ == kind.__module__:
            try:
                code = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(member)}"))
            except (OSError, TypeError, SyntaxError):  # the methods that `dataclass` writes have no text
                continue
            yield "\n".join(ast.unparse(_strip_docstrings(statement)) for statement in code.body)
