"""The code of a user's own class as text: whether it has changed since its trials were trained."""

from __future__ import annotations

import ast
import inspect
import symtable
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NamedTuple

PACKAGE = __name__.partition(".")[0]
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NAMESPACES = {"globals", "locals", "vars", "exec", "eval"}  # functions that set variables without naming them
MAIN = ast.dump(ast.parse("__name__ == '__main__'", mode="eval").body)


def is_own(kind: type) -> bool:
    """Say whether a class is the user's own, and not one of this package."""
    return kind.__module__.partition(".")[0] != PACKAGE


@cache  # as it was when it was first read: a file may change while its code runs
def read_source(kind: type) -> str:
    """Return the code of a class and of everything that it names, directly or through others, in its file and in files
    of the same folder that this one imports, and the statements there that work on such a name, as `TABLE["a"] = 1` or
    `fill(TABLE)`.

    Comments, docstrings and layout are left out, and so is what other places hold. Empty where there is no code to
    read.
    """
    try:
        first = _File(sys.modules[kind.__module__])
    except (OSError, TypeError, KeyError):  # a class of a notebook has no file, but its methods have code
        return "\n".join(_read_methods(kind))
    return _extract(first, kind.__qualname__.partition(".")[0])


def read_own_code(kinds: Iterable[type]) -> str:
    """Return the code of those of these classes that are the user's own."""
    return "\n".join(read_source(kind) for kind in kinds if is_own(kind))


def is_same(code: str, other: str) -> bool:
    """Say whether two texts of `read_source` are the same code, even if two versions of Python wrote them."""
    if code == other:
        return True
    try:
        return ast.dump(ast.parse(code)) == ast.dump(ast.parse(other))
    except SyntaxError:  # one was written by a newer Python
        return False


class _File:
    """The statements of a module's file, the names that each defines, and those that are imported anywhere in it."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.statements = ast.parse(_read_text(module)).body
        self.defined = [_list_defined(statement) for statement in self.statements]
        nodes = [node for statement in self.statements for node in ast.walk(statement)]
        imports = [(self._find_place(n), n.names) for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
        self.starred = [place for place, names in imports if names[0].name == "*"]
        self.imported = {a.asname or a.name: (place, a.name) for place, names in imports for a in names}

    def _find_place(self, node: ast.Import | ast.ImportFrom) -> str:
        """Return the full name of the module that `from ... import` names."""
        if isinstance(node, ast.Import):
            return ""
        parts = str(self.module.__package__).split(".") if node.level else []
        return ".".join([*parts[: len(parts) + 1 - node.level], *filter(None, [node.module])])

    def find_beside(self, name: str) -> ModuleType | None:
        """Find an imported module whose file lies in the same folder."""
        other = sys.modules.get(name)
        mine, its = (Path(getattr(module, "__file__", None) or "").resolve() for module in (self.module, other))
        return other if its.parent == mine.parent and its.suffix == ".py" and its.is_file() else None

    def is_own(self, name: str) -> bool:
        """Say whether a name is of this file or of one beside it, and not built in or imported from elsewhere."""
        if _follow_import(self, _Wanted(self.module, name)):
            return True
        return name not in self.imported and self.defines(name)

    def defines(self, name: str) -> bool:
        return any(name in names for names in self.defined)

    def works_on(self, i: int, names: set[str]) -> bool:
        """Say whether a statement mentions one of these names, or calls what mentions one."""
        pending, seen = [i], {i}
        while pending:
            statement = self.statements[pending.pop()]
            if any(used.name in names for used in _list_used(statement, self.module)):
                return True
            calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
            called = {function.id for function in calls if isinstance(function, ast.Name)}
            more = {j for j, defined in enumerate(self.defined) if called & defined} - seen
            seen |= more
            pending += more
        return False


def _read_text(module: ModuleType) -> str:
    file = Path(getattr(module, "__file__", None) or "")
    if file.is_file() and file.stat().st_size == 0:  # `inspect` takes an empty file for one that is not there
        return ""
    return inspect.getsource(module)


class _Wanted(NamedTuple):
    """A name in a module, and the attribute of it that is used; None: the name by itself."""

    module: ModuleType
    name: str
    attribute: str | None = None


def _extract(first: _File, name: str) -> str:
    """Extract the statements that a name needs: file by file, in the order of each."""
    files = {first.module: first}
    needed: dict[ModuleType, set[int]] = {}  # numbers of statements
    pending, seen = [_Wanted(first.module, name)], set[_Wanted]()
    while pending:
        wanted = pending.pop()
        if wanted not in seen:
            seen.add(wanted)
            if wanted.module not in files:
                files[wanted.module] = _File(wanted.module)
            file, chosen = files[wanted.module], needed.setdefault(wanted.module, set())
            more = {i for i, defined in enumerate(file.defined) if wanted.name in defined} - chosen
            chosen |= more
            pending += [used for i in sorted(more) for used in _list_used(file.statements[i], wanted.module)]
            pending += _follow_import(file, wanted)
        if not pending:  # all names are known: which statements work on them?
            for module, chosen in needed.items():
                more = _list_actions(files[module], {w.name for w in seen if w.module is module}) - chosen
                chosen |= more
                pending += [used for i in sorted(more) for used in _list_used(files[module].statements[i], module)]
    return "\n".join(
        ast.unparse(_strip_docstrings(files[module].statements[i])) for module in needed for i in sorted(needed[module])
    )


def _list_actions(file: _File, names: set[str]) -> set[int]:
    """List the statements that work on one of these names, as far as the names are the user's own, or on all variables
    of the file."""
    own = {name for name in names if file.is_own(name)} | NAMESPACES
    return {i for i, statement in enumerate(file.statements) if _acts(statement) and file.works_on(i, own)}


def _acts(statement: ast.stmt) -> bool:
    """Say whether a statement does more than define names, in a file that is imported and not run."""
    if isinstance(statement, (*DEFINITIONS, ast.Import, ast.ImportFrom)):
        return False
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        places = (node for node in ast.walk(statement) if isinstance(node, ast.Attribute | ast.Subscript))
        return any(isinstance(place.ctx, ast.Store) for place in places)
    return not (isinstance(statement, ast.If) and ast.dump(statement.test) == MAIN)


def _list_used(statement: ast.stmt, module: ModuleType) -> list[_Wanted]:
    """List the names of the file that a statement uses; of `helper.square` the attribute too."""
    attributes = {id(n.value): n.attr for n in ast.walk(statement) if isinstance(n, ast.Attribute)}
    shared = set(_list_global(symtable.symtable(ast.unparse(statement), "<statement>", "exec")))
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id in shared]
    return [_Wanted(module, name.id, attributes.get(id(name))) for name in names]


def _list_global(scope: symtable.SymbolTable) -> Iterator[str]:
    """List the names that are looked up in the file, and not among the arguments and variables of a function."""
    for symbol in scope.get_symbols():
        if scope.get_type() == "module" or symbol.is_global():
            yield symbol.get_name()
    for inner in scope.get_children():
        yield from _list_global(inner)


def _follow_import(file: _File, wanted: _Wanted) -> list[_Wanted]:
    """List what a name stands for where it is imported from a file of the same folder."""
    if wanted.name not in file.imported:
        return [wanted._replace(module=module) for module in _find_starred(file) if _File(module).defines(wanted.name)]
    place, name = file.imported[wanted.name]
    module = file.find_beside(f"{place}.{name}".lstrip("."))
    if module is not None:  # `import helper`, `from . import helper`
        whole = [name for names in _File(module).defined for name in sorted(names)]
        return [_Wanted(module, name) for name in (whole if wanted.attribute is None else [wanted.attribute])]
    module = file.find_beside(place)
    return [] if module is None else [_Wanted(module, name, wanted.attribute)]


def _find_starred(file: _File) -> list[ModuleType]:
    """Find the files of the same folder of which a file imports everything by `*`, directly or through others."""
    found, pending = list[ModuleType](), [file]
    while pending:
        this = pending.pop()
        for module in map(this.find_beside, this.starred):
            if module is not None and module not in found:
                found.append(module)
                pending.append(_File(module))
    return found


def _list_defined(statement: ast.stmt) -> set[str]:
    """List the names that a statement of a file defines."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _strip_docstrings(statement: ast.stmt) -> ast.stmt:
    for node in ast.walk(statement):
        if isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
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
