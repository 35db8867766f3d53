"""Train trials on one device: protocol, inputs, stacks of trials, metrics, and the records that come of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqdg.training.device import choose_device
    from seqdg.training.inputs import Inputs
    from seqdg.training.loss import make_loss
    from seqdg.training.metrics import compute_metrics
    from seqdg.training.optimizers import OPTIMIZERS, Rates
    from seqdg.training.protocol import Protocol, Split, list_sources, split_rows
    from seqdg.training.provenance import find_commit, list_versions, measure_peak_memory, name_device
    from seqdg.training.run_stack import Keep
    from seqdg.training.sampler import Draws, Sampler, make_generator, make_stream
    from seqdg.training.stack import Job, Stack, State

__all__ = [
    "OPTIMIZERS",
    "Draws",
    "Inputs",
    "Job",
    "Keep",
    "Protocol",
    "Rates",
    "Sampler",
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

# Where each name is defined. It is imported when it is first used.
_MODULES = {
    "OPTIMIZERS": "optimizers",
    "Draws": "sampler",
    "Inputs": "inputs",
    "Job": "stack",
    "Keep": "run_stack",
    "Protocol": "protocol",
    "Rates": "optimizers",
    "Sampler": "sampler",
    "Split": "protocol",
    "Stack": "stack",
    "State": "stack",
    "choose_device": "device",
    "compute_metrics": "metrics",
    "find_commit": "provenance",
    "list_sources": "protocol",
    "list_versions": "provenance",
    "make_generator": "sampler",
    "make_loss": "loss",
    "make_stream": "sampler",
    "measure_peak_memory": "provenance",
    "name_device": "provenance",
    "split_rows": "protocol",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seqdg.training' has no attribute '{name}'")
    return getattr(import_module(f"seqdg.training.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
