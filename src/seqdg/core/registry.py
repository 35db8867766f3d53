"""Algorithms and wrappers by name. A file in `algorithms/`, an entry point or an import path adds some; there is no
central list.

`@register("mldg", sequential="s-mldg")` gives a class its name and, where it is chainable, its sequential form's. A
wrapper has its name after a `+`: `@register("ema")` makes `agg+ema`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any, TypeVar

from seqdg.base import ENTRY_POINTS, OTHER_NAMES, UsageError, find_similar, import_plugin, unknown
from seqdg.core.algorithm import Algorithm, Chainable
from seqdg.core.sequential import Sequential
from seqdg.core.settings import collect_rules, with_settings
from seqdg.core.wrapper import ACTED_ON, Wrapper, list_layers

FOREIGN = "domainbed:"  # begins the name of a class of another project, which is no algorithm of ours
NAME = re.compile(r"[\w.\-]+")
_factories: dict[str, Callable[[], Algorithm]] = {}
_wrappers: dict[str, type[Wrapper]] = {}
_origins: dict[str, str] = {}
_loaded = False
Kind = TypeVar("Kind", bound=type[Algorithm])
Chain = TypeVar("Chain", bound=Chainable)


def register(name: str, sequential: str | None = None) -> Callable[[Kind], Kind]:
    """Name a class, so that `build`, the command line and a search find it.

    A chainable class also names its `Sequential`, unless its chain is the class itself. The name of a wrapper stands
    after a `+`.

    Parameters
    ----------
    name : str
        Letters, digits, `-`, `_` and `.`
    sequential : str, optional
        The name of the sequential form; `s-NAME` where none is given.

    Returns
    -------
    callable
        A decorator of the class.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import seqdg
    >>> @seqdg.register("my-agg")
    ... @dataclass(frozen=True)
    ... class MyAGG(seqdg.Algorithm):
    ...     def loss(self, net, params, episode):
    ...         return net.losses(params, episode).mean()
    >>> seqdg.build("my-agg+ema").base
    MyAGG()
    """

    def add(kind: Kind) -> Kind:
        if issubclass(kind, Wrapper) and kind.acts_on not in ACTED_ON:
            raise UsageError(f"{kind.__name__} has acts_on = '{kind.acts_on}'. Choose one of: {', '.join(ACTED_ON)}.")
        _claim(name, kind)
        if issubclass(kind, Wrapper):
            _wrappers[name] = kind
        else:
            _factories[name] = kind
        if issubclass(kind, Chainable) and kind.extend is not Chainable.extend and not kind.symmetric:
            register_chain(sequential or f"s-{name}")(kind)
        return kind

    return add


def register_chain(name: str) -> Callable[[type[Chain]], type[Chain]]:
    """Name `Sequential` of a base that is nothing by itself."""

    def add(kind: type[Chain]) -> type[Chain]:
        _claim(name, kind)
        _factories[name] = lambda: Sequential(kind())
        return kind

    return add


def _claim(name: str, kind: type) -> None:
    """Note the class that a name stands for, or refuse the name."""
    if name in OTHER_NAMES:
        raise UsageError(f"'{name}' is another name of {OTHER_NAMES[name]} already: give {kind.__name__} its own.")
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name}' is no name of an algorithm: letters, digits, '-', '_' and '.' make one.")
    if "__dataclass_fields__" not in vars(kind):
        raise UsageError(f"{kind.__name__} is no dataclass: write @dataclass(frozen=True) below @register.")
    origin = f"{kind.__module__}.{kind.__qualname__}"
    if _origins.get(name, origin) != origin:
        raise UsageError(f"Two algorithms are named '{name}': {_origins[name]} and {origin}. Rename one.")
    _origins[name] = origin


def list_algorithms() -> tuple[str, ...]:
    """Return the name of every registered algorithm, without wrappers.

    Returns
    -------
    tuple of str
        The names, sorted.

    Examples
    --------
    >>> import seqdg
    >>> "fo-s-mldg" in seqdg.list_algorithms()
    True
    """
    _load()
    return tuple(sorted(_factories))


def list_wrappers() -> tuple[str, ...]:
    """Return the name of every registered wrapper, in the order in which they may follow one another.

    Returns
    -------
    tuple of str
        The names, from the innermost to the outermost.

    Examples
    --------
    >>> import seqdg
    >>> seqdg.list_wrappers()[0]
    'mixup'
    """
    _load()
    return tuple(sorted(_wrappers, key=lambda name: (ACTED_ON.index(_wrappers[name].acts_on), name)))


def is_registered(name: str) -> bool:
    """Say whether an algorithm or a wrapper has this name."""
    _load()
    return name in _factories or name in _wrappers


def find_wrapper(name: str) -> type[Wrapper]:
    """Find a registered wrapper's class."""
    _load()
    return _wrappers[name]


def build(name: str, /, **settings: Any) -> Algorithm:
    """Make an algorithm by name.

    Parameters
    ----------
    name : str
        A registered name, or `package.module:name` or `path/to/file.py:name` for your own. Wrappers follow after a `+`,
        from the inside out: `fo-s-mldg+mixup+ema`.
    **settings
        Settings of the algorithm and of its wrappers, by name.

    Returns
    -------
    Algorithm
        The algorithm with these settings.

    Examples
    --------
    >>> import seqdg
    >>> seqdg.build("agg+ema", decay=0.9)
    EMA(base=AGG(), decay=0.9, grows=False)
    >>> seqdg.build("mlgd")
    Traceback (most recent call last):
    seqdg.base.messages.UsageError: There is no algorithm 'mlgd'. Did you mean 'mldg'? Choose from: ...
    """
    _load()
    first, *others = split_chain(name)
    algorithm = _build_base(first)
    previous = ""
    for part in others:
        kind, short = _find_wrapper(part), shorten(part)
        _check_order(name, previous, short)
        algorithm, previous = kind(algorithm), short
    _check_names(algorithm, shorten(name))
    for setting in settings:
        if setting not in collect_rules(algorithm):
            raise unknown("setting", setting, sorted(collect_rules(algorithm)), owner=shorten(name))
    return with_settings(algorithm, settings)


def _build_base(part: str) -> Algorithm:
    short = _import_part(part)
    if short in _wrappers:
        raise UsageError(f"'{short}' is a wrapper: write it after an algorithm, as in agg+{short}.")
    if short not in _factories:
        raise refuse_name(part, list_origins())
    return _factories[short]()


def refuse_name(part: str, origins: Mapping[str, str]) -> UsageError:
    """Return the error for a name that nothing has. origins: the class behind every known name, with its module."""
    location, _, short = part.rpartition(":")
    if short.endswith(".py"):
        return UsageError(f"Which algorithm of {short}? Give its name after a colon, as in {short}:NAME.")
    base = short.removeprefix("s-")
    if base != short and base in _factories and isinstance(kind := _factories[base], type):
        return UsageError(f"There is no '{short}': {_explain_no_sequential(base, kind)}")
    if not location:
        return unknown("algorithm", short, origins)
    inside = f"{import_plugin(location).__name__}."
    names = [name for name, origin in origins.items() if origin.startswith(inside)]
    if not names:
        return UsageError(f"{location} names no algorithm '{short}': write @register(\"{short}\") above its class.")
    near = find_similar(short, names)
    hint = f"Did you mean '{near}'? " if near is not None else ""
    return UsageError(f"{location} has no algorithm '{short}'. {hint}It has: {', '.join(names)}.")


def _explain_no_sequential(name: str, kind: type) -> str:
    if issubclass(kind, Chainable) and kind.symmetric:
        return f"{name} treats all domains alike, so its sequential form is {name} itself."
    return f"{name} has no sequential form. Subclass Chainable and write `extend` to give it one."


def list_origins() -> dict[str, str]:
    """Return the class behind the name of every registered algorithm, with its module."""
    return {name: _origins[name] for name in list_algorithms()}


def _find_wrapper(part: str) -> type[Wrapper]:
    short = _import_part(part)
    if short in _factories:
        raise UsageError(f"'{short}' is an algorithm and no wrapper: only wrappers follow a '+'.")
    if short not in _wrappers:
        raise unknown("wrapper", short, list_wrappers())
    return _wrappers[short]


def _import_part(part: str) -> str:
    if part.startswith(FOREIGN):
        raise UsageError(
            f"{shorten(part)} is a class of DomainBed and no algorithm of seqdg's: `seqdg bench` runs it beside these."
        )
    location, _, short = part.rpartition(":")
    if location:
        import_plugin(location)
    return short


def _check_order(name: str, previous: str, short: str) -> None:
    """Refuse wrappers out of order: inputs, direction, stages, weights, from the inside out, at most one of each."""
    if not previous:
        return
    before, now = (ACTED_ON.index(_wrappers[w].acts_on) for w in (previous, short))
    if before == now:
        what = "twice" if previous == short else f"beside '{previous}'"
        raise UsageError(f"{name} has the wrapper '{short}' {what}: a chain has at most one of each kind.")
    if before > now:
        order = " then ".join(" or ".join(w for w in list_wrappers() if _wrappers[w].acts_on == p) for p in ACTED_ON)
        raise UsageError(f"{name} has '{short}' after '{previous}'. The order is {order}.")


def _check_names(algorithm: Algorithm, name: str) -> None:
    """Refuse a chain of which two parts have a setting of the same name."""
    seen: dict[str, str] = {}
    for layer in list_layers(algorithm):
        for f in fields(layer):
            if isinstance(getattr(layer, f.name), Algorithm):
                continue
            if f.name in seen:
                raise UsageError(
                    f"Two parts of {name} have the setting '{f.name}': {seen[f.name]} and {type(layer).__name__}. "
                    "Rename it in your own class, or leave one of them out."
                )
            seen[f.name] = type(layer).__name__


def _load() -> None:
    global _loaded
    if _loaded:
        return
    _loaded = True
    folder = importlib.import_module("seqdg.algorithms")
    for module in pkgutil.iter_modules(folder.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"seqdg.algorithms.{module.name}")
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()


def split_chain(name: str) -> tuple[str, ...]:
    """Split a name at each `+` that is not inside a path: a base, then its wrappers from the inside out.

    A part is a name, or a file or module, a colon and a name. A path that holds a `+` begins with `.`, `/` or a drive.
    A base that has two names is called by ours: `erm+ema` has the parts of `agg+ema`, and `erm++` those of its recipe.
    """
    name = OTHER_NAMES.get(name, name)
    parts: list[str] = []
    pending: str | None = None  # a path that has not come to its colon yet
    for token in name.split("+"):
        part = token if pending is None else f"{pending}+{token}"
        last = part.rpartition(":")[2]
        if not part or (NAME.fullmatch(last) and not last.endswith(".py")):
            parts.append(part)
            pending = None
        else:
            pending = part
    if pending is not None:
        parts.append(pending)
    if not all(parts):
        raise UsageError(f"'{name}' has an empty part. Write the base and its wrappers as in agg+mixup+ema.")
    return (OTHER_NAMES.get(parts[0], parts[0]), *parts[1:])


def use_own_names(name: str) -> str:
    """Return a name with ours for what has two: `erm+ema` is `agg+ema`."""
    return "+".join(split_chain(name))


def shorten(name: str) -> str:
    """Drop the files that the parts of a name come from: `./mine.py:pull+ema` is `pull+ema`."""
    return "+".join(_shorten_part(part) for part in split_chain(name))


def _shorten_part(part: str) -> str:
    prefix = FOREIGN if part.startswith(FOREIGN) else ""
    return prefix + part.rpartition(":")[2]


def list_inner_names(name: str) -> tuple[str, ...]:
    """List the short names of a chain from its base to the whole: `agg`, `agg+mixup`, `agg+mixup+ema`."""
    parts = shorten(name).split("+")
    return tuple("+".join(parts[: i + 1]) for i in range(len(parts)))
