"""Train trials on one device: protocol, inputs, stacks of trials, metrics, and the records that come of them."""

from typing import TYPE_CHECKING

from seqdg.base.front_door import open_front_door

if TYPE_CHECKING:
    from seqdg.training.device import choose_device
    from seqdg.training.inputs import Inputs
    from seqdg.training.loss import make_loss
    from seqdg.training.metrics import compute_metrics
    from seqdg.training.optimizers import OPTIMIZERS, Rates
    from seqdg.training.protocol import Protocol, Split, list_sources, split_rows
    from seqdg.training.provenance import find_commit, list_versions, measure_peak_memory, name_device
    from seqdg.training.sampler import Draws, Sampler, make_generator, make_stream
    from seqdg.training.saving import Saving
    from seqdg.training.stack import Job, Stack, State

__all__ = [
    "OPTIMIZERS",
    "Draws",
    "Inputs",
    "Job",
    "Protocol",
    "Rates",
    "Sampler",
    "Saving",
    "Split",
    "Stack",
    "State",
    "choose_device",
    "compute_metrics",
    "find_commit",
    "list_sources",
    "list_versions",
    "make_generator",
    "make_loss",
    "make_stream",
    "measure_peak_memory",
    "name_device",
    "split_rows",
]

# `run_stack` has the name of its module and is imported from it: `from seqdg.training.run_stack import run_stack`.

__getattr__, __dir__ = open_front_door(
    __name__,
    {
        "device": "choose_device",
        "inputs": "Inputs",
        "saving": "Saving",
        "loss": "make_loss",
        "metrics": "compute_metrics",
        "optimizers": "OPTIMIZERS Rates",
        "protocol": "Protocol Split list_sources split_rows",
        "provenance": "find_commit list_versions measure_peak_memory name_device",
        "sampler": "Draws Sampler make_generator make_stream",
        "stack": "Job Stack State",
    },
)
