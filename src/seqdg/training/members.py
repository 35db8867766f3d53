"""Deep ensembles: several trainings of one trial, from other seeds, that predict together.

The probabilities of an ensemble are the mean of those of its members (Lakshminarayanan et al., 2017); its numbers, in
regression, the mean of theirs.
"""

from __future__ import annotations

import math

from torch import Tensor


def list_seeds(seed: int, members: int) -> tuple[int, ...]:
    """List the seeds of the members of a trial: those of no two trials overlap, and a member alone has the trial's."""
    return tuple(range(seed * members, (seed + 1) * members))


def pool_outputs(outputs: Tensor, members: int) -> Tensor:
    """Return what the members of each trial say together (trial, row, class): the logarithm of the mean of their
    probabilities, or the mean of their numbers, where a net gives one number per row (regression).

    outputs: (trial x member, row, class); those of one member each are returned as they are.
    """
    if members == 1:
        return outputs
    each = outputs.double().reshape(len(outputs) // members, members, *outputs.shape[1:])
    if outputs.shape[-1] == 1:
        return each.mean(1)
    return each.log_softmax(-1).logsumexp(1) - math.log(members)
