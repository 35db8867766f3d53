"""What the members of the MLDG family share: a new domain is judged one step ahead of the past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seqdg.algorithm import Chainable, Number, Numbers, Range, setting
from seqdg.episode import Episode
from seqdg.models.net import Net
from seqdg.positions import check_count, nth, nth_from_end


@dataclass(frozen=True)
class LookAhead(Chainable):
    """The two settings of MLDG, per position of the path."""

    alpha: Numbers = setting(0.1, least=0.0, per_position=True, search=Range(1e-3, 1.0))
    beta: Numbers = setting(1.0, least=0.0, per_position=True, search=Range(0.5, 2.0))
    needs: ClassVar[int] = 2
    inert: ClassVar[tuple[str, ...]] = ("beta_1",)  # the first domain has no past to be judged after

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        self.check_path(net, 2)

    def check_path(self, net: Net, length: int) -> None:
        check_count("alpha", self.alpha, (length - 1,), length)
        check_count("beta", self.beta, tuple(range(1, length + 1)), length)

    def coefficients(self, position: int, length: int) -> tuple[Number, Number]:
        """alpha_i and beta_{i+1} of a path of `length` domains, of which the first has position 0."""
        return nth(self.alpha, position - 1), nth_from_end(self.beta, position, length)


def halves(episode: Episode) -> tuple[Episode, int]:
    """Meta-train and meta-test of MLDG by itself: all domains of the path but the last, and the last."""
    last = episode.domains - 1
    return episode.part(0, last), last
