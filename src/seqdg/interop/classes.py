"""DomainBed's classes, unmodified, in our runner: on our splits and minibatches, resumable, in one table with ours.

    seqdg bench --algorithms domainbed:CORAL,domainbed:./mine.py:Mine,agg --domainbed DIR

A class is built as its train.py builds it, `cls(input_shape, num_classes, num_domains, hparams)`, and gets
`update([(x_i, y_i), ...], None)` with the domains in the order of the sources. It builds its own network and steps
its own optimizer; `predict` gives the logits. Its settings are its hparams. Three of these are the protocol's: `lr`
and `weight_decay`, by default its own, and `batch_size`, which is our batch, as all methods of a table see the same
rows.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from seqdg.base import UsageError, read_title, state_reason, unknown
from seqdg.bench import Candidate, Draft, Group, Learner, OnStep, Session, Task, Trial
from seqdg.core import format_value, shorten, split_chain
from seqdg.interop import checkout
from seqdg.interop.checkout import is_large
from seqdg.interop.class_training import Training, load_minibatches
from seqdg.nets import IMAGENET, Net, NetSpec, Normalization
from seqdg.results import Record
from seqdg.training import Protocol, Saving, lend_randomness, list_sources, set_precision, split_rows

NET = NetSpec("domainbed")
PROTOCOL = {"lr": "lr", "weight_decay": "weight_decay", "batch": "batch_size"}  # fields of the protocol, as hparams
TRAINING = ("steps", "evaluations", "precision", "domains_per_step", *PROTOCOL)  # what can be set of the training
# Its optimizer and what that does are its own: nothing of the benchmark's is recorded that does not act.
PLAIN = {k: getattr(Protocol(), k) for k in ("optimizer", "momentum", "schedule", "warmup", "drop_every", "drop")}
PRECISIONS = ("float32", "tf32", "float64")


def make_learner(name: str) -> DomainBedClass:
    """Return what trains `domainbed:CORAL`."""
    first, *wrappers = split_chain(name)
    if wrappers:
        raise UsageError(
            f"{shorten(first)} takes no wrapper, and '{name}' has '{wrappers[0]}': a class of DomainBed steps its own "
            "weights, which no wrapper of ours can change. Leave it out."
        )
    return DomainBedClass(first)


class DomainBedClass(Learner):
    """One class of DomainBed, or of the user's written like these."""

    trains_net = False  # it builds its own

    def __init__(self, name: str) -> None:
        self.name, self.short = name, shorten(name)
        self.is_own = ":" in name.removeprefix(checkout.PREFIX)  # from a file of the user's

    @cached_property
    def kind(self) -> Any:
        return checkout.find_class(self.name)

    def list_classes(self, name: str) -> tuple[type, ...]:
        return (self.kind,) if self.is_own else ()

    def propose(self, draft: Draft) -> list[Candidate]:
        checkout.find_class(self.name)  # raises where there is no such class
        if draft.count < 1:
            raise UsageError(f"{draft.count} candidates were asked for, but at least 1 is needed.")
        defaults = checkout.read_defaults(self.short, draft.shape)
        # A file with the settings of a trial has its whole training, also what is recorded as plain.
        plain = {k: v for k, v in {**vars(Protocol()), **PLAIN}.items() if k not in (*TRAINING, *defaults)}
        table = {k: v for k, v in draft.table.items() if k not in plain or v != plain[k]}
        chosen = {**{k: format_value(v) for k, v in table.items()}, **draft.settings}
        self._check_names(chosen, defaults)
        drawn = [checkout.draw_settings(self.short, draft.shape, i) for i in range(1, draft.count)]
        return [self._make_candidate(draft, defaults, values, chosen) for values in (defaults, *drawn)]

    def _make_candidate(
        self, draft: Draft, defaults: Mapping[str, Any], values: Mapping[str, Any], chosen: Mapping[str, str]
    ) -> Candidate:
        texts = {**{k: format_value(v) for k, v in values.items()}, **chosen}
        settings = {
            name: format_value(parse_setting(name, defaults.get(name), text))
            for name, text in texts.items()
            if name not in (*TRAINING, *PROTOCOL.values())
        }
        rates = {field: float(values[field]) for field in ("lr", "weight_decay") if field not in chosen}
        protocol = replace(draft.protocol, **{**PLAIN, **rates})
        return Candidate(draft.name, tuple(sorted(settings.items())), protocol, NET)

    def _check_names(self, chosen: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
        for name in chosen:
            known = [k for k in defaults if k not in PROTOCOL.values()]
            if name in PROTOCOL.values() and name not in PROTOCOL:
                raise UsageError(
                    f"{self.short} takes its minibatches from the protocol, as all methods of a table do: set "
                    f"{self.short}.batch in place of {name}."
                )
            if name in vars(Protocol()) and name not in (*TRAINING, *defaults):
                raise UsageError(
                    f"{self.short} steps its own optimizer, so its {name} cannot be set. Of its training, these can: "
                    f"{', '.join(TRAINING)}."
                )
            if name not in (*known, *TRAINING) and not self.is_own:
                raise unknown("setting", name, (*known, *TRAINING), owner=self.short)

    def check_device(self, trial: Trial, device: str) -> None:
        if not device.startswith("cuda") and checkout.asks_for_cuda(self.kind):
            raise UsageError(
                f"{self.short} asks for CUDA in its code (.cuda()), and the device here is {device}: run it where "
                "there is a GPU, or leave it out."
            )

    def check(self, trial: Trial, task: Task, net: Net | None) -> None:
        if task.dataset().is_regression:
            raise UsageError(f"{self.short} is a classifier, and {task.name} is a regression task: leave it out.")
        if trial.protocol.precision not in PRECISIONS:
            raise UsageError(
                f"{self.short} trains in {', '.join(PRECISIONS)}, and the precision is {trial.protocol.precision}. "
                f"Choose one of these with --set {self.short}.precision=float32."
            )
        if trial.protocol.domains_per_step:
            raise UsageError(
                f"{self.short} gets a minibatch of every source in every step, and domains_per_step is "
                f"{trial.protocol.domains_per_step}: choose 0 for it (--set {self.short}.domains_per_step=0)."
            )
        if trial.protocol.members > 1:
            raise UsageError(
                f"{self.short} is trained once for each trial, and members is {trial.protocol.members}: choose 1. "
                "`seqdg soup --kind ensemble` mixes what a run has trained."
            )
        if checkout.asks_for_cuda(self.kind) and not torch.cuda.is_available():
            return  # a worker has the GPU on which it can be built
        with lend_randomness(trial.seed), redirect_stdout(sys.stderr):  # some print what they do, where tables go
            algorithm = self.build(trial, task)
            # A step of a large network may take as long as a training of others.
            if not is_large(find_shape(trial, task)):
                self._try_step(algorithm, trial, task)

    def _try_step(self, algorithm: nn.Module, trial: Trial, task: Task) -> None:
        """Take one step, as some errors come no sooner: a wrong version of a package, a network for other inputs."""
        cpu, dtype = torch.device("cpu"), torch.get_default_dtype()
        split = split_rows(task.dataset(), trial.protocol, trial.held_out, trial.seed)
        inputs = task.make_inputs([trial], choose_inputs(trial, task), cpu, prepares=False)  # one step
        minibatches = next(load_minibatches(trial, split, inputs, 0, 1))
        torch.set_default_dtype(trial.protocol.dtype)
        try:
            algorithm.to(trial.protocol.dtype).update(minibatches, None)  # type: ignore[operator]
        except Exception as error:  # code of others
            raise self._explain(error, "trained on", find_shape(trial, task)) from error
        finally:
            torch.set_default_dtype(dtype)

    def _explain(self, error: Exception, what: str, shape: tuple[int, ...]) -> UsageError:
        if isinstance(error, KeyError):
            return UsageError(
                f"{self.short} asks for the setting {error}, which DomainBed's hparams_registry does not define for "
                f"it: give it with --set {self.short}.{error.args[0]}=VALUE, or define it there."
            )
        message = state_reason(error)
        backpack = " Fishr's code is for BackPACK 1.3." if "grad_batch" in message or "backpack" in message else ""
        return UsageError(
            f"{self.short} cannot be {what} inputs of shape {shape} ({type(error).__name__}: {message}).{backpack} "
            "Fix that, or leave it out."
        )

    def build(self, trial: Trial, task: Task) -> nn.Module:
        """Build the class for a trial, from the random state of this process."""
        shape, dataset = find_shape(trial, task), task.dataset()
        if len(shape) == 3 and shape[1:] not in ((28, 28), (32, 32), (224, 224)) and not self.is_own:
            raise UsageError(
                "DomainBed has networks for vectors and for images of 28, 32 or 224 pixels a side, and those of "
                f"{task.name} have {shape[1]} by {shape[2]}: set size in [net] of a benchmark file of your own."
            )
        hparams = self.read_hparams(trial, shape)
        sources = list_sources(dataset, trial.held_out, trial.protocol)
        try:
            return cast(nn.Module, self.kind(shape, len(dataset.classes), len(sources), hparams))
        except Exception as error:  # code of others, on a network of theirs: whatever is wrong is so before training
            raise self._explain(error, "built for", shape) from error

    def read_hparams(self, trial: Trial, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the settings as the class wants them, with what the protocol says of them."""
        defaults = checkout.read_defaults(self.short, shape)
        settings = {name: parse_setting(name, defaults.get(name), text) for name, text in trial.settings}
        return {**settings, **{hparam: getattr(trial.protocol, field) for field, hparam in PROTOCOL.items()}}

    def train(self, group: Group, session: Session, on_step: OnStep = lambda step: None) -> list[Record]:
        device = torch.device(session.device)
        return [self._train(trial, session.task, device, on_step, session.saving) for trial in group.trials]

    def _train(self, trial: Trial, task: Task, device: torch.device, on_step: OnStep, saving: Saving) -> Record:
        self.check_device(trial, device.type)
        set_precision(trial.protocol.precision)
        split = split_rows(task.dataset(), trial.protocol, trial.held_out, trial.seed)
        inputs = task.make_inputs([trial], choose_inputs(trial, task), device)
        default = torch.get_default_dtype()
        torch.set_default_dtype(trial.protocol.dtype)
        try:
            training = Training(
                name=Group((trial,)).key,
                trial=trial,
                build=lambda: self.build(trial, task).to(device),
                split=split,
                inputs=inputs,
                device=device,
                on_step=on_step,
                saving=saving,
                made_by={"domainbed": self.fingerprint},
                notes=task.dataset().notes,
            )
            with redirect_stdout(sys.stderr):
                return training.finish()
        finally:
            torch.set_default_dtype(default)

    @cached_property
    def fingerprint(self) -> str:
        """Of the files that its code is in: whoever repeats a record wants the same."""
        modules = [checkout.import_module(name) for name in ("algorithms", "networks", "lib.misc")]
        files = [inspect.getsourcefile(part) for part in (*modules, self.kind)]
        digest = hashlib.sha256()
        for file in dict.fromkeys(file for file in files if file):
            digest.update(Path(file).read_bytes())
        return digest.hexdigest()[:12]


def find_shape(trial: Trial, task: Task) -> tuple[int, ...]:
    """Return the shape of one input of a trial."""
    dataset = task.dataset()
    return (dataset.shape[0], trial.size, trial.size) if dataset.is_image else tuple(dataset.shape)


def choose_inputs(trial: Trial, task: Task) -> Normalization:
    """Say how pixels are scaled: for ImageNet's networks as these want them, from 0 to 1 for small ones, as DomainBed
    has both."""
    scale = IMAGENET if is_large(find_shape(trial, task)) else Normalization()
    return task.normalization or scale


def parse_setting(name: str, default: Any, text: str) -> Any:
    """Read a setting as the type of its default; a whole number may become a fraction, as its own searches draw one.
    Without a default, as what it looks like."""
    if isinstance(default, str):
        return text
    can_be_bool = default is None or isinstance(default, bool)
    if can_be_bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = math.nan if isinstance(default, bool) else float(text)
    except ValueError:
        if default is None:
            return text
        number = math.nan
    if not math.isfinite(number):
        what = "true or false" if isinstance(default, bool) else "a finite number"
        raise UsageError(f"{name} is '{text}', but it must be {what}.")
    is_whole = isinstance(default, int) or (default is None and not set(text) & set(".eE"))
    return int(number) if is_whole and number == int(number) else number


def describe_classes() -> list[dict[str, object]]:
    """List its classes with titles and settings, for `seqdg list`."""
    classes: list[dict[str, object]] = []
    for name in checkout.list_classes():
        kind = checkout.find_class(f"{checkout.PREFIX}{name}")
        defaults = checkout.read_defaults(name, (1,))
        settings = {k: format_value(v) for k, v in defaults.items() if k != PROTOCOL["batch"]}
        classes.append({"name": f"{checkout.PREFIX}{name}", "title": read_title(kind), "settings": settings})
    return classes
