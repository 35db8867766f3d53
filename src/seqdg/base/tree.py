"""Arithmetic on dictionaries of tensors, such as the weights of a net. A name that only one side has is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from seqdg.base.messages import list_own
from seqdg.base.private import add_each, is_transformed, multiply_each, subtract_each

Tree = Mapping[str, Tensor]


def __dir__() -> list[str]:
    return list_own(globals())


def _check_names(a: Tree, b: Tree) -> None:
    if a.keys() != b.keys():
        names = ", ".join(repr(name) for name in sorted(a.keys() ^ b.keys()))
        raise KeyError(f"only one of two trees has {names}")


def add(a: Tree, b: Tree, scale: float | Tensor = 1.0) -> dict[str, Tensor]:
    """Return a + scale * b.

    Parameters
    ----------
    a, b : mapping of str to Tensor
        Trees with the same names.
    scale : float or Tensor
        A factor of b.

    Returns
    -------
    dict of str to Tensor
        The sum, by name.

    Examples
    --------
    >>> import torch
    >>> from seqdg import tree
    >>> tree.add({"w": torch.ones(2)}, {"w": torch.ones(2)}, scale=-0.5)
    {'w': tensor([0.5000, 0.5000])}
    """
    _check_names(a, b)
    if _is_plain_cuda(a):
        return _add_together(a, b, scale)
    if isinstance(scale, Tensor):
        return {name: torch.addcmul(value, b[name], scale) for name, value in a.items()}
    return {name: torch.add(value, b[name], alpha=scale) for name, value in a.items()}


def _is_plain_cuda(a: Tree) -> bool:
    """Whether all names can be treated in one launch: on a GPU, outside transforms of torch.func."""
    return bool(a) and not is_transformed() and next(iter(a.values())).is_cuda


def _add_together(a: Tree, b: Tree, scale: float | Tensor) -> dict[str, Tensor]:
    """Add all names in one or two launches. It does not work under transforms of torch.func."""
    steps = [b[name] for name in a]
    if isinstance(scale, Tensor):
        sums = add_each(list(a.values()), multiply_each(steps, scale))
    else:
        sums = add_each(list(a.values()), steps, scale)
    return dict(zip(a, sums, strict=True))


def scale(a: Tree, factor: float | Tensor) -> dict[str, Tensor]:
    """Return factor * a.

    Parameters
    ----------
    a : mapping of str to Tensor
        A tree.
    factor : float or Tensor
        A number.

    Returns
    -------
    dict of str to Tensor
        The product, by name.
    """
    return {name: factor * value for name, value in a.items()}


def mix(a: Tree, b: Tree, share: float | Tensor) -> dict[str, Tensor]:
    """Return (1 - share) * a + share * b.

    Parameters
    ----------
    a, b : mapping of str to Tensor
        Trees with the same names.
    share : float or Tensor
        From 0, which gives a, to 1, which gives b.

    Returns
    -------
    dict of str to Tensor
        The mixture, by name.
    """
    _check_names(a, b)
    if _is_plain_cuda(a):
        step = multiply_each(subtract_each([b[name] for name in a], list(a.values())), share)
        return dict(zip(a, add_each(list(a.values()), step), strict=True))
    return {name: torch.lerp(value, b[name], share) for name, value in a.items()}


def dot(a: Tree, b: Tree) -> Tensor:
    """Return the inner product: the sum of the products over all entries of all names.

    Parameters
    ----------
    a, b : mapping of str to Tensor
        Trees with the same names.

    Returns
    -------
    Tensor
        ()
    """
    _check_names(a, b)
    return torch.stack([(value * b[name]).sum() for name, value in a.items()]).sum()


def squared_norm(a: Tree) -> Tensor:
    """Return the sum of the squares of all entries.

    Parameters
    ----------
    a : mapping of str to Tensor
        A tree.

    Returns
    -------
    Tensor
        ()
    """
    return dot(a, a)


def stack(trees: Sequence[Tree]) -> dict[str, Tensor]:
    """Return one tree whose tensors have a new first axis, with an entry per tree.

    Parameters
    ----------
    trees : sequence of mappings of str to Tensor
        Trees with the same names.

    Returns
    -------
    dict of str to Tensor
        (tree, ...) by name.

    Examples
    --------
    >>> import torch
    >>> from seqdg import tree
    >>> tree.stack([{"w": torch.zeros(2)}, {"w": torch.ones(2)}])["w"].shape
    torch.Size([2, 2])
    """
    for tree in trees:
        _check_names(trees[0], tree)
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def unstack(tree: Tree) -> list[dict[str, Tensor]]:
    """Return a tree for each entry of the first axis: the inverse of `stack`.

    Parameters
    ----------
    tree : mapping of str to Tensor
        A tree whose tensors have a first axis of the same length.

    Returns
    -------
    list of dict of str to Tensor
        The trees.
    """
    size = len(next(iter(tree.values())))
    return [{name: value[i] for name, value in tree.items()} for i in range(size)]


def detach(a: Tree) -> dict[str, Tensor]:
    """Return the tree without its history: gradients do not flow through it.

    Parameters
    ----------
    a : mapping of str to Tensor
        A tree.

    Returns
    -------
    dict of str to Tensor
        The same values.
    """
    return {name: value.detach() for name, value in a.items()}


def with_prefix(a: Tree, prefix: str) -> dict[str, Tensor]:
    """Return the tree with a prefix in front of every name.

    Parameters
    ----------
    a : mapping of str to Tensor
        A tree.
    prefix : str
        For example "mean."

    Returns
    -------
    dict of str to Tensor
        The same tensors under new names.

    Examples
    --------
    >>> import torch
    >>> from seqdg import tree
    >>> memory = tree.with_prefix({"w": torch.ones(1)}, "mean.")
    >>> list(memory), list(tree.under_prefix(memory, "mean."))
    (['mean.w'], ['w'])
    """
    return {prefix + name: value for name, value in a.items()}


def under_prefix(a: Tree, prefix: str) -> dict[str, Tensor]:
    """Return the entries whose name starts with the prefix, and remove it from their names.

    Parameters
    ----------
    a : mapping of str to Tensor
        A tree.
    prefix : str
        The start of names.

    Returns
    -------
    dict of str to Tensor
        These entries, under the rest of their names.
    """
    return {name[len(prefix) :]: value for name, value in a.items() if name.startswith(prefix)}


def select_prefix(a: Tree, prefix: str) -> dict[str, Tensor]:
    """Return the entries whose name starts with the prefix, under their names.

    Parameters
    ----------
    a : mapping of str to Tensor
        A tree.
    prefix : str
        The start of names.

    Returns
    -------
    dict of str to Tensor
        These entries.
    """
    return {name: value for name, value in a.items() if name.startswith(prefix)}


def without_prefix(a: Tree, prefix: str) -> dict[str, Tensor]:
    """Return the entries whose name does not start with the prefix.

    Parameters
    ----------
    a : mapping of str to Tensor
        A tree.
    prefix : str
        The start of names.

    Returns
    -------
    dict of str to Tensor
        The other entries.
    """
    return {name: value for name, value in a.items() if not name.startswith(prefix)}
