"""Train any number of trials at once, or one large one.

A stack holds trials that share a net and the shape of their algorithm; their seeds, splits, held-out domains, numeric
settings and learning rates are data. What one trial does is written once, for one trial; a stack of several is its
`torch.func.vmap`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from seqdg.base import TARGET, Episode, Params, UsageError, private, state_reason, tree
from seqdg.core import Algorithm, Number, SharedTraining, collect_numbers, with_numbers
from seqdg.nets import Net
from seqdg.training.device import use_serving_precision
from seqdg.training.inputs import Inputs, to_channels_last
from seqdg.training.metrics import DomainPredictions, fit_temperature, pool_outputs
from seqdg.training.optimizers import OPTIMIZERS, Rates, Slots
from seqdg.training.protocol import BY_CLASS, Protocol, choose_optimizer, end_stages
from seqdg.training.replay import NotRecordable
from seqdg.training.sampler import Sampler, Upcoming
from seqdg.training.splits import EvaluatedRows, Split, lay_out_rows, repeat_by_class
from seqdg.training.step import (
    CapturedStep,
    CaptureError,
    Carried,
    CompilationError,
    Step,
    StepData,
    StepWriter,
    capture_step,
    copy_carried,
    select_slots,
)

DRAWN_AHEAD = 64  # steps
RECORDED_FROM = 30  # steps on a CPU
log = logging.getLogger("seqdg")


@dataclass(frozen=True)
class View:
    """One way to deploy the weights of a training: as they are, or averaged. Each view has its own record."""

    key: str = ""
    description: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One training, as a stack does it."""

    algorithm: Algorithm
    protocol: Protocol
    split: Split
    seed: int
    params: Params  # all that is trained, at the start
    # The first view deploys the weights as they are. A `SharedTraining` has one more for each of its averages. None: a
    # view that nobody asked for. An average alone is a `SharedTraining` too: algorithms note losses of plain weights.
    views: tuple[View | None, ...] = (View(),)
    first: Params | None = None  # the net's own first weights; None: those that the stack's net has


class Outcome(NamedTuple):
    """What has a record: a trial of the stack, deployed in one way."""

    trial: int
    number: int  # of the view
    view: View
    split: Split


@dataclass
class State:
    """Everything that training carries from one step to the next; tensors have a first axis of trials."""

    step: int
    stage: int  # the last one entered
    params: Params
    slots: Slots  # the optimizer's
    losses: list[Tensor] = field(default_factory=list)  # (step, trial) each, of all steps so far
    memory: Params = field(default_factory=dict)  # the algorithm's


class Stack:
    """Trials that train together."""

    def __init__(
        self,
        net: Net,
        inputs: Inputs,
        jobs: Sequence[Job],
        capture: bool = True,
        sampler: Sampler | None = None,
        compiles: bool = False,
        recorded_from: int = RECORDED_FROM,
        members: int = 1,
    ) -> None:
        """members: how many jobs, one after the other, predict together and have one record."""
        self.net, self.inputs, self.jobs, self.members = net, inputs, jobs, members
        self.algorithm, self.protocol = jobs[0].algorithm, jobs[0].protocol
        self.alone = len(jobs) == 1
        # Whether trials take their steps one after the other: as is said, or because `vmap` was tried and failed.
        self.loops = not (self.alone or (net.stackable and self.algorithm.stackable))
        self.optimizer = OPTIMIZERS[choose_optimizer(self.algorithm, self.protocol)]
        seeds, rows, p = [job.seed for job in jobs], [job.split.train for job in jobs], self.protocol
        if p.balance == BY_CLASS:
            rows = [tuple(repeat_by_class(own, inputs.y) for own in of_job) for of_job in rows]
        domains = p.count_domains(len(rows[0]))
        self.upcoming = Upcoming(sampler or Sampler(seeds, rows, p.batch, domains, inputs.device, p.path))
        self._targets: Upcoming | None = None  # unlabelled rows of the held-out domains, where the algorithm uses them
        if TARGET in self.algorithm.uses:
            each = [[torch.cat(job.split.test)] for job in jobs]
            self._targets = Upcoming(Sampler(seeds, each, p.batch, 1, inputs.device, purpose=TARGET))
        # What all trials have the same stays a plain number: arithmetic with it needs less than with a tensor.
        self.numbers = self._stack_numbers([collect_numbers(job.algorithm) for job in jobs])
        self.rates = self._stack_rates()
        self._lr = torch.tensor([job.protocol.lr for job in jobs], dtype=torch.float64).to(inputs.device, inputs.dtype)
        self.outcomes = [
            Outcome(i, number, view, job.split)
            for i, job in enumerate(jobs[::members])
            for number, view in enumerate(job.views)
            if view is not None
        ]
        self.bounds = end_stages(self.algorithm, self.protocol.steps)
        self.is_pure = net.stackable and self.algorithm.stackable  # no Python between its operations decides anything
        self.captures = capture and inputs.device.type == "cuda" and inputs.is_resident and self.is_pure
        self.compiles = compiles and self.is_pure
        self._writer = StepWriter(
            net,
            self.algorithm,
            self.optimizer,
            self.numbers,
            self.rates,
            self.map_over_trials,
            self.protocol.precision,
            self.protocol.layer_decay,
        )
        self.recorded_from = recorded_from  # steps of a stage
        self._steps: dict[int, Step] = {}  # by stage
        self._graphs: dict[int, CapturedStep] = {}

    def start(self) -> State:
        """Return the state before the first step."""
        params = stack_weights([job.params for job in self.jobs], self.inputs.device)
        sources = len(self.jobs[0].split.train)
        first = [job.first for job in self.jobs if job.first is not None]
        begun = stack_weights(first, self.inputs.device) if len(first) == len(self.jobs) else {}

        def remember(algorithm: Algorithm, weights: Params, own: Params) -> Params:
            return algorithm.memory(self.net.starting_from(own) if own else self.net, weights, sources)

        with self._use_device():
            memory = self._apply(remember, params, begun)
        return State(0, -1, params, {}, memory={name: value.contiguous() for name, value in memory.items()})

    def advance(self, state: State, stop: int, on_progress: Callable[[int], None] = lambda steps: None) -> State:
        """Train until `stop` steps are taken; `on_progress` is called with the number of new steps."""
        state = replace(state, losses=list(state.losses))
        with self._use_device():
            while state.step < stop:
                while state.stage < 0 or state.step == self.bounds[state.stage]:
                    self.enter(state)
                first, last = state.step, min(stop, self.bounds[state.stage], state.step + DRAWN_AHEAD)
                self._train(state, first, last)
                on_progress(last - first)
        return state

    def deploy(self, state: State, view: int | None = None) -> Params:
        """Return the weights that serve unseen domains, with BatchNorm recalibrated where the policy says so.

        view: one of a `SharedTraining`; by default the first of which there is a record.
        """
        chosen = self.outcomes[0].number if view is None else view

        def deploy_one(algorithm: Algorithm, params: Params, memory: Params) -> Params:
            if isinstance(algorithm, SharedTraining):
                return algorithm.deploy_as(chosen, params, memory)
            return algorithm.deploy(params, memory)

        with self._use_device(), torch.no_grad():
            return self.recalibrate(self._apply(deploy_one, state.params, state.memory))

    def recalibrate(self, deployed: Params) -> Params:
        """Return deployed weights with the BatchNorm statistics that belong to them, where the policy says so."""
        if not self.net.on_batch:
            return deployed
        with self._use_device(), torch.no_grad():
            return {**deployed, **self._compute_statistics(deployed)}

    @cached_property
    def uses_evaluations(self) -> bool:
        """Whether an evaluation changes what the algorithm remembers."""
        job, device = self.jobs[0], self.inputs.device
        sources, params = len(job.split.train), {name: p.to(device) for name, p in job.params.items()}
        memory = job.algorithm.memory(self.net, params, sources)
        after = job.algorithm.evaluated(memory, torch.zeros(sources, dtype=self.inputs.dtype, device=device))
        return any(after[name] is not value for name, value in memory.items())

    def note_evaluation(self, state: State, losses: Tensor) -> State:
        """Return the state after the algorithm has noted losses (trial, source) of weights that are not averaged."""
        with self._use_device(), torch.no_grad():
            losses = losses.to(self.inputs.device, self.inputs.dtype)
            memory = self._apply(lambda algorithm, *both: algorithm.evaluated(*both), state.memory, losses)
            return replace(state, memory=memory)

    @cached_property
    def evaluated_rows(self) -> EvaluatedRows:
        return lay_out_rows([job.split for job in self.jobs], self.algorithm.together, self.inputs.device)

    def predict(self, deployed: Params, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (trial, row, class) and labels (trial, row) of rows (trial, row), some rows at a time: as many
        as the algorithm wants at once, where it does, from the first row on. Numbers are in the user's units."""
        together = self.algorithm.together or self._count_rows_together(rows.shape[0])
        logits, labels = [], []
        with self._use_device(), use_serving_precision(self.protocol.precision), torch.no_grad():
            for chunk in torch.split(rows.to(self.inputs.device), together, dim=1):
                x, y = self.inputs.serve(chunk)
                outputs = self._apply(lambda algorithm, *both: algorithm.predict(self.net, *both), deployed, x)
                logits.append(self.inputs.restore(outputs))
                labels.append(y)
        return torch.cat(logits, 1), torch.cat(labels, 1)

    def predict_domains(self, deployed: Params, pooled: bool = True) -> list[DomainPredictions]:
        """Predict the validation rows of every source, then the rows of every held-out and of every validation domain.

        Where a trial has fewer rows of a domain than another of the stack, or than whole batches of a transductive
        algorithm, rows of its own fill it up, which do not count: so each trial predicts as it would alone.
        pooled: as a trial predicts, the members of an ensemble together and, where the protocol says so, calibrated.
        """
        rows, counts, masks, fifths = self.evaluated_rows
        if rows.numel():
            logits, y = self.predict(deployed, rows)
        else:  # a net of the user's own may not take 0 rows
            logits, y = torch.zeros(*rows.shape, 2, device=rows.device), rows.to(self.inputs.y.dtype)
        if pooled and self.members > 1:  # the members of an ensemble are evaluated on the same rows
            every = self.members
            logits, y, rows = pool_outputs(logits, every), y[::every], rows[::every]
            masks = [mask[::every] for mask in masks]
            fifths = [None if fifth is None else fifth[::every] for fifth in fifths]
        if pooled and self.protocol.calibrate and logits.shape[-1] > 1:
            validation = len(self.jobs[0].split.validation)
            end, mask = sum(counts[:validation]), torch.cat([*masks[:validation], masks[0][:, :0]], 1)
            temperature = fit_temperature(logits[:, :end], y[:, :end], mask, self.inputs.find_weights(rows[:, :end]))
            logits = logits / temperature[:, None, None].to(logits.dtype)
        split = (torch.split(values, counts, 1) for values in (logits, y, rows))
        inputs = self.inputs
        return [
            DomainPredictions(part, y, mask, rows, fifth, inputs.find_groups(rows), inputs.find_weights(rows))
            for part, y, rows, mask, fifth in zip(*split, masks, fifths, strict=True)
        ]

    def map_over_trials(self, one: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function of all trials from one of a single trial; tensors in and out have a first axis of trials."""

        def map_single(*stacked: Any) -> Any:
            out = one(*private.map_tensors(lambda t: t.squeeze(0), stacked))
            return private.map_tensors(lambda t: t.unsqueeze(0), out)

        def map_each(*stacked: Any) -> Any:
            return _stack_results([one(*_select_trial(stacked, i)) for i in trials])

        def try_together(*stacked: Any) -> Any:
            if self.loops:
                return map_each(*stacked)
            try:
                return together(*stacked)
            except (UsageError, NotRecordable, torch.OutOfMemoryError):
                raise
            except Exception as error:  # whatever torch.func cannot map, and mistakes, which the loop repeats
                reason = state_reason(error)
            results = map_each(*stacked)
            self.loops = True
            log.warning(
                "Trials cannot be stacked, and take their steps one after the other (`stackable = False` in the "
                "class says so at once): %s",
                reason,
            )
            return results

        together, trials = vmap(one), range(len(self.jobs))
        return map_single if self.alone else try_together

    def _apply(self, one: Callable[..., Any], *stacked: Any) -> Any:
        """Apply a function of one trial's algorithm, with its numeric settings, and of its tensors to all trials."""
        apply = self.map_over_trials(lambda numbers, *parts: one(with_numbers(self.algorithm, numbers), *parts))
        return apply(self.numbers, *stacked)

    def _train(self, state: State, first: int, last: int) -> None:
        draws = self._draw_steps(state.stage, first, last)
        graph = self._find_graph(state, draws)
        if graph is not None:
            carried, losses = graph.run(_carry(state), draws)
            _put_back(state, carried)
            self.upcoming.prepare(last, min(last + DRAWN_AHEAD, self.bounds[-1]))  # while the device is at work
        else:
            _put_back(state, copy_carried(_carry(state)))  # what others hold of the state before stays as it is
            losses = self._run_eagerly(state, draws)
        state.losses.append(losses)
        state.step = last

    def _draw_steps(self, stage: int, first: int, last: int) -> StepData:
        """Draw what every trial sees in these steps, (step, trial, ...), on the device."""
        device, start = self.inputs.device, self.bounds[stage - 1] if stage else 0
        domain, rows, key = self.upcoming.take(first, last)
        share = (torch.arange(first, last, device=device) - start).double() / (self.bounds[stage] - start)
        progress = share.to(self.inputs.dtype)[:, None].expand(last - first, len(self.jobs))
        data = {"domain": domain, "rows": rows, "key": key, "progress": progress}
        if self._targets is not None:
            data[TARGET] = self._targets.take(first, last).rows.squeeze(2)
        if any(job.protocol.has_schedule for job in self.jobs):
            schedules = {job.protocol.schedule_fields: job.protocol for job in self.jobs}
            which = {fields: i for i, fields in enumerate(schedules)}
            factors = [[p.scale_rate(step, self.bounds[-1]) for p in schedules.values()] for step in range(first, last)]
            of_trial = torch.tensor([which[job.protocol.schedule_fields] for job in self.jobs])
            rates = torch.tensor(factors, dtype=torch.float64).to(self.inputs.dtype).index_select(1, of_trial)
            data["rate"] = rates.to(device, non_blocking=True)
        return data

    def _run_eagerly(self, state: State, draws: StepData) -> Tensor:
        """Take the steps in place: of tensors that nobody else holds."""
        take, carried, losses = self._find_step(state.stage), _carry(state), []
        for i, (x, y) in enumerate(self.inputs.load_steps(draws["rows"], draws["key"])):
            factor = draws["rate"][i] if "rate" in draws else None
            now = {name: values[i] for name, values in draws.items()}
            losses.append(take(carried, self._make_episode(x, y, now), factor))
        return torch.stack(losses)

    def _find_graph(self, state: State, draws: StepData) -> CapturedStep | None:
        """Return the step of the state's stage as a graph, which is recorded at its first use; None without graphs."""
        if self.captures and state.stage not in self._graphs:
            take = self._find_step(state.stage)

            def load_and_take(carried: Carried, now: StepData) -> Tensor:
                x, y = self.inputs.load_step(now["rows"], now["key"])
                return take(carried, self._make_episode(x, y, now), now.get("rate"))

            try:
                self._graphs[state.stage] = capture_step(load_and_take, _carry(state), draws, DRAWN_AHEAD)
            except CaptureError as error:
                self.captures = False
                log.warning("The step cannot be one CUDA graph and is run kernel by kernel: %s", error)
        return self._graphs.get(state.stage)

    def _make_episode(self, x: Tensor, y: Tensor, now: StepData) -> Episode:
        uses = self.algorithm.uses
        extras = self.inputs.load_extras(uses, now) if uses else {}
        rate = self._find_rate(now.get("rate"))
        return Episode(x, y, now["domain"], now["progress"], now["key"], rate, extras)

    def _find_rate(self, factor: Tensor | None) -> Tensor:
        """Return (trial,) the learning rates of a step. factor: (trial,) what schedules make of them."""
        return self._lr if factor is None else self._lr * factor

    def _find_step(self, stage: int) -> Step:
        """Return the step of a stage, which is made at its first use."""
        if stage not in self._steps:
            written = self._writer.write(stage, self._is_recorded(stage))
            self._steps[stage] = self._try_compiled(self._writer.compile(stage), written) if self.compiles else written
        return self._steps[stage]

    def _is_recorded(self, stage: int) -> bool:
        """Say whether the operations of a stage's step are recorded: on a CPU, for a small net, which spends more time
        on the way to an operation than in it, and for enough steps to make up for recording."""
        steps = self.bounds[stage] - (self.bounds[stage - 1] if stage else 0)
        is_linear = all(p.dim() <= 2 for p in self.net.params().values())
        is_pure = self.is_pure and not self.loops
        return self.inputs.device.type == "cpu" and is_linear and is_pure and steps >= self.recorded_from

    def _try_compiled(self, compiled: Step, written: Step) -> Step:
        """Return the compiled step, which gives way to the one as it is written where it cannot be compiled."""

        def attempt(carried: Carried, episode: Episode, factor: Tensor | None) -> Tensor:
            if self.compiles:
                try:
                    return compiled(carried, episode, factor)
                except CompilationError as error:
                    self.compiles = False
                    log.warning("The step is not compiled but taken as it is written: %s", error)
            return written(carried, episode, factor)

        return attempt

    def enter(self, state: State) -> None:
        """Begin the next stage, with a new optimizer."""
        state.stage += 1
        stage = state.stage

        def enter(algorithm: Algorithm, params: Params, memory: Params) -> tuple[Params, Params]:
            return algorithm.stages()[stage][1].enter(self.net, params, memory)

        state.params, state.memory = self._apply(enter, state.params, state.memory)
        state.slots = self.map_over_trials(self._writer.init_slots)(state.params)

    def _use_device(self) -> Any:
        """Make the stack's device torch's current one: graphs are recorded and kernels are started there."""
        device = self.inputs.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def _stack_numbers(self, values: Sequence[Mapping[str, Number]]) -> dict[str, Tensor]:
        """Stack the numeric settings in which the trials differ. values: the settings of each trial."""
        different = [name for name, first in values[0].items() if any(v[name] != first for v in values)]
        exact = [{name: torch.as_tensor(v[name], dtype=torch.float64) for name in different} for v in values]
        return {name: v.to(self.inputs.device, self.inputs.dtype) for name, v in tree.stack(exact).items()}

    def _stack_rates(self) -> Rates:
        protocols = [job.protocol for job in self.jobs]
        rates = [Rates(p.lr, p.momentum, p.weight_decay) for p in protocols]
        schedules = {p.schedule_fields for p in protocols}
        # torch's fused updates read a rate that changes as a float32.
        loses_digits = protocols[0].has_schedule and self.inputs.dtype == torch.float64
        if len(set(rates)) == 1 and len(schedules) == 1 and not loses_digits:
            return rates[0]
        columns = torch.tensor(rates, dtype=torch.float64).T.contiguous()
        return Rates(*columns.to(self.inputs.device, self.inputs.dtype))

    def _compute_statistics(self, deployed: Params, most: int = 512) -> Params:
        """Return the deployed statistics, from equal parts of the sources' training rows (at most `most` each)."""
        batch = self.protocol.batch
        count = max(1, min(most, *(len(rows) for job in self.jobs for rows in job.split.train)) // batch)
        sampler = self.upcoming.sampler
        rows = sampler.draw(0, count * sampler.round).rows  # (step, trial, source, batch)
        parts = (self.inputs.serve(part)[0] for part in rows.transpose(1, 2).flatten(0, 1))  # (step x source, trial)
        return self.net.pool_statistics(
            [self._apply(lambda algorithm, *both: algorithm.statistics(self.net, *both), deployed, x) for x in parts]
        )

    def _count_rows_together(self, trials: int) -> int:
        """Say how many rows of each trial are predicted at once."""
        budget = 2**23
        if self.inputs.device.type == "cuda":
            # The features inside a convolutional net are tens of times as large as its images. Few rows at a time leave
            # a large GPU waiting for the host; more than this could give a layer 2**31 numbers.
            memory = torch.cuda.get_device_properties(self.inputs.device).total_memory
            budget = 2**28 if self.inputs.transform is None else 2**26 if memory > 2**35 else 2**25
        return max(1, budget // (trials * self.inputs.size))


def _select_trial(stacked: Any, i: int) -> Any:
    """Return what is one trial's of tensors that have a first axis of trials."""
    return private.map_tensors(lambda t: t.select(0, i), stacked)


def _stack_results(results: Sequence[Any]) -> Any:
    """Return what the function of one trial gave for each, every tensor with a first axis of trials."""
    leaves, structures = zip(*map(private.flatten, results), strict=True)
    stacked = [torch.stack(parts) if isinstance(parts[0], Tensor) else parts[0] for parts in zip(*leaves, strict=True)]
    return private.unflatten(stacked, structures[0])


def _carry(state: State) -> Carried:
    """Return all tensors that a step takes over from the one before."""
    return {"params": state.params, "memory": state.memory, **state.slots}


def _put_back(state: State, carried: Carried) -> None:
    state.params, state.memory, state.slots = carried["params"], carried["memory"], select_slots(carried)


# ---------------------------------------------------------------------------- the axis of trials


def stack_weights(trials: Sequence[Params], device: torch.device) -> Params:
    """Stack the weights of trials on the device; those of a single trial in the memory order of its inputs."""
    stacked = {name: stack_shared([params[name] for params in trials], device) for name in trials[0]}
    return stacked if len(trials) > 1 else {name: to_channels_last(p) for name, p in stacked.items()}


def stack_shared(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Stack tensors on the device; one that several trials share, or that repeats itself, is copied there once."""
    shared = {id(v): v for v in values}
    index = {key: i for i, key in enumerate(shared)}
    repeated = [axis for axis in range(values[0].dim()) if all(v.stride(axis) == 0 for v in shared.values())]
    once = torch.stack([_drop_repeats(v, repeated) for v in shared.values()]).to(device)
    once = once.expand(-1, *values[0].shape)
    if len(once) == len(values):
        return once.contiguous()
    return once.index_select(0, torch.tensor([index[id(v)] for v in values], device=device))


def _drop_repeats(value: Tensor, repeated: Sequence[int]) -> Tensor:
    """Return a tensor with length 1 along the axes along which it is expanded."""
    for axis in repeated:
        value = value.narrow(axis, 0, 1) if value.shape[axis] else value
    return value
