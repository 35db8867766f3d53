"""DomainBed's classes, unmodified, in our runner: on our splits and minibatches, resumable, in one table with ours.

    seqdg bench --algorithms domainbed:CORAL,domainbed:./mine.py:Mine,agg --domainbed DIR

A class is built as its train.py builds it, `cls(input_shape, num_classes, num_domains, hparams)`, and gets
`update([(x_i, y_i), ...], None)` with the domains in the order of the sources. It builds its own net and steps its own
optimizer; `predict` gives the logits. Its settings are its hparams. Three of these are the protocol's: `lr` and
`weight_decay`, by default its own, and `batch_size`, which is our batch, as all methods of a table see the same rows.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from seqdg.base import UsageError, hold_interrupts, unknown
from seqdg.bench import Candidate, Draft, Group, Learner, OnStep, Task, Trial
from seqdg.core import Algorithm, format_value, shorten, split_chain
from seqdg.interop.domainbed import checkout
from seqdg.interop.domainbed.checkout import is_large
from seqdg.interop.domainbed.state import Randomness, Unstorable, restore_state, save_state
from seqdg.nets import IMAGENET, BuiltNet, Net, NetSpec, Normalization
from seqdg.results import DIVERGED, DONE, LOSS_POINTS, Evaluation, Record, thin
from seqdg.training import (
    DomainPredictions,
    Inputs,
    Protocol,
    Sampler,
    Saving,
    Split,
    View,
    find_commit,
    hash_weights,
    is_finite,
    list_evaluation_steps,
    list_sources,
    list_versions,
    mark_fifth,
    measure_peak_memory,
    measure_predictions,
    name_checkpoint,
    name_device,
    place_tensor,
    read_header,
    reset_peak_memory,
    save_step,
    save_weights,
    set_precision,
    shuffle_order,
    split_rows,
)

NET = NetSpec("domainbed")
PROTOCOL = {"lr": "lr", "weight_decay": "weight_decay", "batch": "batch_size"}  # fields of the protocol, as hparams
TRAINING = ("steps", "evaluations", "precision", "domains_per_step", *PROTOCOL)  # what can be set of the training
# Its optimizer and what that does are its own: nothing of the benchmark's is recorded that does not act.
PLAIN = {k: getattr(Protocol(), k) for k in ("optimizer", "momentum", "schedule", "warmup", "drop_every", "drop")}
PRECISIONS = ("float32", "tf32", "float64")
TOGETHER = 64  # rows that are predicted at once, as DomainBed does: some of its classes learn from them
AHEAD = 64  # steps whose rows are drawn at once
MOMENT = 0.25  # seconds between ticks


def make_learner(name: str) -> DomainBedClass:
    """Return what trains `domainbed:CORAL`."""
    first, *wrappers = split_chain(name)
    if wrappers:
        raise UsageError(
            f"{shorten(first)} takes no wrapper, and '{name}' has '{wrappers[0]}': a class of DomainBed steps its own "
            "weights, which nothing of ours stands around. Leave it out."
        )
    return DomainBedClass(first)


class DomainBedClass(Learner):
    """One class of DomainBed, or of the user's written like these."""

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

    def check(self, trial: Trial, task: Task, net: Net) -> None:
        if task.dataset().is_regression:
            raise UsageError(f"{self.short} tells classes apart, and {task.name} has numbers to predict: leave it out.")
        if trial.protocol.precision not in PRECISIONS:
            raise UsageError(
                f"{self.short} trains in {', '.join(PRECISIONS)}, and the precision is {trial.protocol.precision}. "
                f"Choose one of these with --set {self.short}.precision=float32."
            )
        if trial.protocol.domains_per_step:
            raise UsageError(
                f"{self.short} is given a minibatch of every source in every step, and domains_per_step is "
                f"{trial.protocol.domains_per_step}: choose 0 for it (--set {self.short}.domains_per_step=0)."
            )
        if trial.protocol.members > 1:
            raise UsageError(
                f"{self.short} is trained once for each trial, and members is {trial.protocol.members}: choose 1. "
                "`seqdg soup --kind ensemble` mixes what a run has trained."
            )
        if checkout.asks_for_cuda(self.kind) and not torch.cuda.is_available():
            return  # a worker has the GPU on which it can be built
        with Randomness(trial.seed), redirect_stdout(sys.stderr):  # some print what they do, where tables go
            algorithm = self.build(trial, task)
            if not is_large(find_shape(trial, task)):  # a step of a large net may take as long as a training of others
                self._try_step(algorithm, trial, task)

    def _try_step(self, algorithm: nn.Module, trial: Trial, task: Task) -> None:
        """Take one step, as some errors come no sooner: a wrong version of a package, a net for other inputs."""
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
        message = next(iter(str(error).splitlines()), "no message").rstrip(".")
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
                "DomainBed has nets for vectors and for images of 28, 32 or 224 pixels a side, and those of "
                f"{task.name} have {shape[1]} by {shape[2]}: set size in [net] of a benchmark file of your own."
            )
        hparams = self.read_hparams(trial, shape)
        try:
            built: nn.Module = self.kind(
                shape, len(dataset.classes), len(list_sources(dataset, trial.held_out, trial.protocol)), hparams
            )
        except Exception as error:  # code of others, on a net of theirs: whatever is wrong, it is so before training
            raise self._explain(error, "built for", shape) from error
        return built

    def read_hparams(self, trial: Trial, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the settings as the class wants them, with what the protocol says of them."""
        defaults = checkout.read_defaults(self.short, shape)
        settings = {name: parse_setting(name, defaults.get(name), text) for name, text in trial.settings}
        return {**settings, **{hparam: getattr(trial.protocol, field) for field, hparam in PROTOCOL.items()}}

    def train(
        self,
        group: Group,
        task: Task,
        device: torch.device,
        on_step: OnStep = lambda step: None,
        saving: Saving | None = None,
    ) -> list[Record]:
        return [self._train(trial, task, device, on_step, saving or Saving()) for trial in group.trials]

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


def choose_inputs(trial: Trial, task: Task) -> BuiltNet:
    """Say how pixels are scaled: for ImageNet's nets as these want them, and from 0 to 1 for small nets, as DomainBed
    has both."""
    scale = IMAGENET if is_large(find_shape(trial, task)) else Normalization()
    return BuiltNet(nn.Identity(), task.normalization or scale)


def parse_setting(name: str, default: Any, text: str) -> Any:
    """Read a setting as the type of its default; a whole number may become a fraction, as its own searches draw one.
    Without a default, as what it looks like."""
    if isinstance(default, str):
        return text
    if text.lower() in ("true", "false") and (default is None or isinstance(default, bool)):
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        if default is None:
            return text
        raise UsageError(
            f"{name} is '{text}', but it must be {'true or false' if isinstance(default, bool) else 'a number'}."
        ) from None
    if isinstance(default, bool):
        raise UsageError(f"{name} is '{text}', but it must be true or false.")
    if not math.isfinite(number):
        raise UsageError(f"{name} is '{text}', but it must be finite.")
    is_whole = isinstance(default, int) or (default is None and not set(text) & set(".eE"))
    return int(number) if is_whole and number == int(number) else number


def describe_classes() -> list[dict[str, object]]:
    """List its classes with titles and settings, for `seqdg list`."""
    classes: list[dict[str, object]] = []
    for name in checkout.list_classes():
        kind = checkout.find_class(f"{checkout.PREFIX}{name}")
        defaults = checkout.read_defaults(name, (1,))
        settings = {k: format_value(v) for k, v in defaults.items() if k != PROTOCOL["batch"]}
        classes.append({"name": f"{checkout.PREFIX}{name}", "title": checkout.read_title(kind), "settings": settings})
    return classes


@dataclass
class Training:
    """A class in training.

    name: of the checkpoint.   build: makes the class anew, from the random state of the process.
    made_by: what else must be the same for the same bits.
    """

    name: str
    trial: Trial
    build: Callable[[], Any]
    split: Split
    inputs: Inputs
    device: torch.device
    on_step: Callable[[int], None]
    saving: Saving
    made_by: Mapping[str, str]
    notes: Sequence[str] = ()
    step: int = 0
    losses: list[float] = field(default_factory=list)
    history: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    is_whole: bool = True  # not in the middle of an update

    def finish(self) -> Record:
        reset_peak_memory(self.device)
        self.began = self.written = time.perf_counter()
        with Randomness(self.trial.seed, self.device) as self.randomness, hold_interrupts() as self.interrupted:
            self.algorithm = self._start()
            self.began -= self.seconds
            try:
                while not (self.history and self.history[-1].step == self.step and self._ends()):
                    self._train(self.stops[len(self.history)])
                    self._evaluate()
                    self._heed_interrupts()
            except KeyboardInterrupt:
                if self.is_whole:
                    self._write_checkpoint()
                raise
            return self._make_record()

    @cached_property
    def stops(self) -> tuple[int, ...]:
        return list_evaluation_steps(Algorithm(), self.trial.protocol)

    def _start(self) -> Any:
        data = self.saving.files.read(name_checkpoint(self.name)) if self.saving.files else None
        if data is not None:
            try:
                return self._resume(data)
            except ValueError as error:
                print(f"seqdg: {self.trial.short_name} starts anew: {error}.", file=sys.stderr)
                self.randomness.restart()
        return self._build()

    def _build(self) -> Any:
        algorithm = self.build()
        if isinstance(algorithm, nn.Module):
            algorithm.train()
        return algorithm

    def _train(self, stop: int) -> None:
        told = time.perf_counter()
        while self.step < stop:
            last = min(stop, self.step + AHEAD)
            for minibatches in load_minibatches(self.trial, self.split, self.inputs, self.step, last):
                self.is_whole = False
                self.losses.append(read_loss(self.algorithm.update(minibatches, None)))
                self.step += 1
                self.is_whole = True
                now = time.perf_counter()
                if now - told > MOMENT or self.step == stop:
                    self.on_step(self.step)
                    told = now
                self._heed_interrupts()
                if self.saving.checkpoint and now - self.written >= self.saving.checkpoint:
                    self._write_checkpoint()

    def _heed_interrupts(self) -> None:
        """Stop if there was an interrupt. It waited until here: half an update is no state to go on from."""
        if self.interrupted:
            raise KeyboardInterrupt

    def _ends(self) -> bool:
        """Whether an evaluation now is the last: all steps are taken, or one had a loss that is not finite."""
        return self.step == self.stops[-1] or not all(map(math.isfinite, self.losses))

    def _evaluate(self) -> None:
        parts, sources = self._predict_domains(), len(self.split.validation)
        history = [*self.history, measure_predictions(parts, sources, self.step, self.split.held_out_at_once)[0]]
        held_out = parts[sources : sources + len(self.split.test)]
        save_step(self.saving, self._view, history, self._ends(), self._read_weights, lambda: held_out)
        self.history = history

    def _predict_domains(self) -> list[DomainPredictions]:
        self.algorithm.eval()
        try:
            with torch.no_grad():
                parts = [self._predict(rows) for rows in self.split.validation]
                parts += [self._predict(*both) for both in zip(self.split.test, self.split.fifth, strict=True)]
                parts += [self._predict(rows) for rows in self.split.outside or ()]
        finally:
            self.algorithm.train()
        return parts

    def _predict(self, rows: Tensor, fifth: Tensor | None = None) -> DomainPredictions:
        """Predict rows of one domain. fifth: those of a held-out domain by which `oracle-split` chooses."""
        rows = rows[shuffle_order(len(rows))][None]
        logits, labels = [], []
        for chunk in torch.split(rows.to(self.device), TOGETHER, dim=1) if rows.numel() else ():
            x, y = self.inputs.serve(chunk)
            logits.append(self.algorithm.predict(x[0]))
            labels.append(y[0])
        if not logits:
            return DomainPredictions(torch.zeros(1, 0, 2), rows, torch.zeros_like(rows, dtype=torch.bool))
        y = torch.cat(labels)[None]
        marked = None if fifth is None else mark_fifth(rows, [fifth], self.device)
        mask, groups = torch.ones_like(y, dtype=torch.bool), self.inputs.find_groups(rows)
        return DomainPredictions(torch.cat(logits)[None], y, mask, rows, marked, groups)

    @cached_property
    def _origin(self) -> dict[str, str]:
        return {
            "device": name_device(self.device),
            "commit": find_commit(),
            **list_versions(),
            **self.made_by,
            **self.saving.checkpoint_facts,
        }

    def _write_checkpoint(self) -> None:
        if not self.saving.checkpoint or self.saving.files is None:
            return
        self.seconds = time.perf_counter() - self.began
        try:
            data = self._encode()
            self.saving.files.write(name_checkpoint(self.name), data)
        except (OSError, Unstorable) as error:  # The numbers do not depend on it, so training goes on.
            print(f"seqdg: no checkpoint of {self.trial.short_name} could be written ({error}).", file=sys.stderr)
        self.written = time.perf_counter()

    def _encode(self) -> bytes:
        state, tensors = save_state(self.algorithm)
        random, more = self.randomness.save()
        named = {f"state/{i}": t for i, t in enumerate(tensors)} | {f"random/{i}": t for i, t in enumerate(more)}
        header = {
            "trials": [self.trial.key],
            "made_by": self._origin,
            "step": self.step,
            "losses": self.losses,
            "evaluations": [asdict(e) for e in self.history],
            "seconds": self.seconds,
            "state": state,
            "random": random,
            "tensors": {name: value.stride() for name, value in named.items()},
        }
        # Cloned, as safetensors refuses tensors that share memory.
        plain = {n: t.detach().cpu().clone(memory_format=torch.contiguous_format) for n, t in named.items()}
        return save(plain, {"seqdg": json.dumps(header)})

    def _resume(self, data: bytes) -> Any:
        """Build the class and put everything back; raise a ValueError where that cannot be."""
        header = read_header(data)
        if header["made_by"] != self._origin:
            raise ValueError("its checkpoint was made by another version or device")
        if header["trials"] != [self.trial.key]:
            raise ValueError("its checkpoint is of another trial")
        try:
            stored = load(data)
        except SafetensorError as error:
            raise ValueError(f"its checkpoint cannot be read ({error})") from None
        cpu = torch.device("cpu")
        named = {name: place_tensor(stored[name], stride, cpu) for name, stride in header["tensors"].items()}
        tensors, random = (
            [named[f"{part}/{i}"] for i in range(sum(name.startswith(f"{part}/") for name in named))]
            for part in ("state", "random")
        )
        algorithm = self._build()
        missing = restore_state(algorithm, header["state"], tensors, self.device)
        if missing:  # what it makes only while it trains: one step, which leaves nothing behind, makes it
            algorithm.update(next(load_minibatches(self.trial, self.split, self.inputs, 0, 1)), None)
            missing = restore_state(algorithm, header["state"], tensors, self.device)
        if missing:
            raise ValueError(f"nothing is known of how it makes {missing[0]}")
        self.randomness.restore(header["random"], random)
        self.step, self.losses, self.seconds = header["step"], header["losses"], header["seconds"]
        self.history = [Evaluation(**e) for e in header["evaluations"]]
        return algorithm

    @property
    def _view(self) -> View:
        return View(self.trial.key, self.trial.description())

    def _make_record(self) -> Record:
        weights = {name: value.detach().cpu() for name, value in self._read_weights().items()}
        save_weights(self.saving, self._view, weights, self.step)
        stayed_finite = all(map(math.isfinite, self.losses)) and is_finite(self.history[-1], self.split)
        return Record(
            key=self.trial.key,
            description=self.trial.description(),
            status=DONE if stayed_finite else DIVERGED,
            history=self.history,
            losses=thin(self.losses, LOSS_POINTS),
            seconds=time.perf_counter() - self.began,
            peak_memory=measure_peak_memory(self.device),
            device=name_device(self.device),
            versions={**list_versions(), **self.made_by},
            commit=find_commit(),
            weights=hash_weights(weights),
            notes=[*self.notes, self._describe_optimizers()],
        )

    def _read_weights(self) -> dict[str, Tensor]:
        return {n: v for n, v in self.algorithm.state_dict().items() if isinstance(v, Tensor)}

    def _describe_optimizers(self) -> str:
        """Say what steps the weights: a reader compares with our optimizers, which differ in how weights decay."""
        kinds = [type(v).__name__ for v in vars(self.algorithm).values() if isinstance(v, torch.optim.Optimizer)]
        names = ", ".join(dict.fromkeys(kinds)) or "none in sight"
        return (
            f"{self.trial.short_name} builds its own net and steps its own optimizer: {names} of torch, whose weight "
            "decay is part of the gradient (adam-l2 here)."
            if set(kinds) == {"Adam"}
            else f"{self.trial.short_name} builds its own net and steps its own optimizers: {names}."
        )


def draw_rows(trial: Trial, split: Split, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return the rows (step, source, batch) that a trial sees in these steps, in the order of the sources, and the keys
    (step,) of their augmentation: those that our algorithms see with the same seed."""
    domain, rows, key = (d[:, 0] for d in Sampler([trial.seed], [split.train], trial.protocol.batch).draw(first, last))
    position = domain.argsort(1)  # of each source in the path
    return rows.gather(1, position[:, :, None].expand_as(rows)), key


def load_minibatches(
    trial: Trial, split: Split, inputs: Inputs, first: int, last: int
) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Yield the minibatches of these steps, one for each source in their order: the rows that a stack would see."""
    rows, key = draw_rows(trial, split, first, last)
    for x, y in inputs.load_steps(rows[:, None].to(inputs.device), key[:, None].to(inputs.device)):
        yield [(x[0, i].contiguous(), y[0, i].contiguous()) for i in range(x.shape[1])]


def read_loss(values: Mapping[str, Any]) -> float:
    """Return the loss of what `update` returned: `loss`, or the first that is named like one."""
    names = [name for name in values if name == "loss"] + [name for name in values if "loss" in name]
    return float(values[names[0]]) if names else 0.0
