"""Windows of max pooling, as the kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

LARGEST = 5  # side of a window: the kernels are written out for every place in it


class Window(NamedTuple):
    """A square window that moves over an image.

    ceil: the last window of a row or a column may reach beyond the padding, if it begins before.
    """

    size: int
    stride: int
    padding: int
    ceil: bool

    def count(self, length: int) -> int:
        """Count the windows along a side of an image."""
        room = length + 2 * self.padding - self.size
        count = (room + (self.stride - 1) * self.ceil) // self.stride + 1
        if self.ceil and (count - 1) * self.stride >= length + self.padding:
            count -= 1
        if count < 1:
            raise RuntimeError(f"A window of {self.size} does not fit into {length} + 2 x {self.padding} positions.")
        return count


def make_window(size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Window | None:
    """Return the window, or None where the kernels do not cover it: not square, with gaps, or large."""
    sides = [set(s) if isinstance(s, (tuple, list)) else {s} for s in (size, stride, padding, dilation)]
    if any(len(side) != 1 for side in sides):
        return None
    size, stride, padding, dilation = (side.pop() for side in sides)
    if dilation != 1 or size > LARGEST or 2 * padding > size:
        return None
    return Window(size, stride, padding, ceil)
