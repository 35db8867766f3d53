"""A module as a pure function of its weights, and one that computes its activations again for the gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call, vjp, vmap
from torch.nn.functional import cross_entropy

from seqdg.base import Episode, Minibatch, Params, UsageError, refuse_broken, unknown
from seqdg.nets.batchnorm import (
    ON_BATCH,
    POLICIES,
    find_batchnorm_without_statistics,
    has_batchnorm,
    pool_statistics,
    purify_batchnorm,
    record_statistics,
    split_batches,
)
from seqdg.nets.dropout import (
    PureDropout,
    RefuseRandomFunctions,
    draw_masks,
    find_pass,
    purify_dropout,
    refuse_random_functions,
)
from seqdg.nets.folding import find_linear_weights, fold_layers, list_layout, measure_depths, trace
from seqdg.nets.nesting import compose_where_nested, find_barrier
from seqdg.nets.points import Point, PointFunction, apply_at_points, list_points, place_points

Criterion = Callable[[Tensor, Tensor], Tensor]
FACTORS = (".lora_a", ".lora_b")  # what follows the name of a matrix in the names of its two factors


class Net:
    """A neural network as a pure function of its weights.

    `net(params, x)` is the module's output with its weights replaced by `params`; the module does not change. If
    `params` hold BatchNorm statistics (the trainer adds those of `statistics` to deployed weights), the net
    normalizes by them.
    Without, the weights are in training, and the policy decides. The head is the module's last linear layer, and its
    inputs are the features. Weights that do not require a gradient are constants: they are not in `params` and never
    trained.

    With a key, dropout layers drop by masks that are drawn from it; a minibatch and an episode have one. Without,
    nothing is dropped: so networks serve.

    Parameters
    ----------
    module : torch.nn.Module
        The network. Its weights are where training starts.
    batchnorm : {"frozen", "recalibrate", "running", "none"}
        What BatchNorm layers do: "frozen" normalizes by the running statistics as they are, "recalibrate" and "running"
        by the minibatch in training and by measured statistics once deployed; "none": there are no such layers.
    loss : callable
        The loss of a minibatch's logits and labels, its mean over the rows.

    Examples
    --------
    >>> import torch
    >>> from seqdg import Net
    >>> net = Net(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), batchnorm="none")
    >>> net(net.params(), torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    >>> net.features(net.params(), torch.zeros(2, 4)).shape
    torch.Size([2, 8])
    """

    def __init__(self, module: nn.Module, batchnorm: str = "frozen", loss: Criterion = cross_entropy) -> None:
        if batchnorm not in POLICIES:
            raise unknown("BatchNorm policy", batchnorm, POLICIES)
        if batchnorm == "none" and has_batchnorm(module):
            raise UsageError(
                "The net has BatchNorm layers but its policy is 'none'. Choose 'frozen', 'recalibrate' or 'running'."
            )
        if batchnorm == "frozen" and (layer := find_batchnorm_without_statistics(module)) is not None:
            raise UsageError(
                f"BatchNorm layer '{layer}' keeps no running statistics that could be frozen. Choose 'recalibrate'."
            )
        self.policy, self.criterion = batchnorm, loss
        self.is_regression = bool(getattr(loss, "is_regression", False))  # a number per row, and no logits
        self.on_batch = batchnorm in ON_BATCH and has_batchnorm(module)
        pure = self._purify(module, self.on_batch)
        parameters = dict(pure.named_parameters())
        self._initial = {name: p.detach().clone() for name, p in parameters.items() if p.requires_grad}
        fixed = {name: p for name, p in parameters.items() if not p.requires_grad}
        self._constants = {name: b.detach().clone() for name, b in (*pure.named_buffers(), *fixed.items())}
        self.names = tuple(self._initial)
        self._twins = {
            name for name, _ in pure.named_parameters(remove_duplicate=False)
        } - parameters.keys()  # tied weights
        self._statistics = frozenset(n for n in self._constants if n.endswith(("running_mean", "running_var")))
        self._head = _find_head(pure)
        with _in_train_mode(pure):
            graph = trace(pure)
        if graph is not None:
            refuse_random_functions(graph, dict(pure.named_modules()), self._head)
        self._untraced = [True] if graph is None else []  # until a first pass in training
        self._barrier = find_barrier(pure, graph)
        self._training = fold_layers(pure)
        # Whether gradients of gradients of all its convolutions go by `kernels.nested`, where it can run.
        self.nests = not self.on_batch and not any(isinstance(m, nn.Conv2d) for m in self._training.modules())
        self._serving = fold_layers(self._purify(module, on_batch=False)) if self.on_batch else self._training
        self._bodies = tuple(_remove_head(m, self._head) for m in (self._training, self._serving))
        self.stackable = bool(getattr(module, "stackable", True))  # False: trials of a stack pass through it one by one
        self.has_dropout = find_pass(pure) is not None
        self.points, self._layout = list_points(pure), list_layout(pure)
        self.depths = measure_depths(pure)
        self._functions: dict[str, PointFunction] = {}
        self._merge: Callable[[Params], Params] | None = None  # what makes all weights of those that are trained
        if not self.names and fixed:
            raise UsageError("All weights of the net are frozen (requires_grad=False): there is nothing to train.")
        if stuck := fixed.keys() & set(self.head_names):
            raise UsageError(
                f"The last layer of the net is frozen ({min(stuck)} has requires_grad=False), but it makes the logits: "
                "let it be trained."
            )

    @staticmethod
    def _purify(module: nn.Module, on_batch: bool) -> nn.Module:
        return place_points(purify_dropout(purify_batchnorm(module, on_batch).eval()))

    def params(self) -> Params:
        """Return a fresh copy of the trained weights, as the module had them.

        Returns
        -------
        Params
            The weights by name.
        """
        return {name: p.clone() for name, p in self._initial.items()}

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Net:
        """Return the net with its constants (BatchNorm statistics, frozen weights) and initial weights on a device.

        Parameters
        ----------
        device : torch.device or str, optional
            The device; None leaves them where they are.
        dtype : torch.dtype, optional
            Their type; None leaves it as it is. Whole numbers keep theirs.

        Returns
        -------
        Net
            The same net there.
        """
        other = copy.copy(self)
        other._constants = {
            name: b.to(device, dtype if b.is_floating_point() else None) for name, b in self._constants.items()
        }
        other._initial = {name: p.to(device, dtype) for name, p in self._initial.items()}
        return other

    def check_nesting(self, kind: str) -> None:
        """Raise a UsageError where gradients of the net's gradients cannot be taken, or not be trusted.

        Parameters
        ----------
        kind : str
            What takes them, such as the name of an algorithm's class.
        """
        if self._barrier is not None:
            raise UsageError(
                f"{kind} differentiates gradients of the net, and {self._barrier}. Replace it, or choose an algorithm "
                "that differentiates once, such as agg or fo-s-mldg."
            )

    def with_criterion(self, loss: Criterion) -> Net:
        """Return the same net with another loss of logits and labels.

        Parameters
        ----------
        loss : callable
            The loss of a minibatch, its mean over the rows.

        Returns
        -------
        Net
            The net with that loss.
        """
        other = copy.copy(self)
        other.criterion = loss
        other.is_regression = self.is_regression or bool(getattr(loss, "is_regression", False))
        return other

    def with_points(self, functions: Mapping[str, PointFunction]) -> Net:
        """Return the same net, in which what passes a point, h (row, channel, ...), goes on as the function returns it.

        In a pass over an episode the rows of its domains follow each other. A function that only looks returns h as it
        is. It draws no random numbers: it may close over the key of the episode. `points` lists the names.

        Parameters
        ----------
        functions : mapping of str to callable
            A function of h for each name of a point.

        Returns
        -------
        Net
            The net that applies them.
        """
        if missing := [name for name in functions if name not in self.points]:
            raise UsageError(
                f"The net has no point '{missing[0]}' between its layers. "
                + (
                    f"It has: {', '.join(self.points)}."
                    if self.points
                    else "It has none: put a seqdg.nets.Point there."
                )
            )
        other = copy.copy(self)
        other._functions = dict(functions)
        return other

    def starting_from(self, first: Params) -> Net:
        """Return the same net with other first weights, which `params` returns.

        Parameters
        ----------
        first : Params
            The weights by name.

        Returns
        -------
        Net
            The net that starts there.
        """
        other = copy.copy(self)
        other._initial = dict(first)
        return other

    def training_instead(self, weights: Params, constants: Params, merge: Callable[[Params], Params]) -> Net:
        """Return the net that trains these weights alone, factors of its own among them; all others are constants.

        Parameters
        ----------
        weights : Params
            What is trained, with its first values.
        constants : Params
            The values of the net's weights that are not.
        merge : callable
            Makes the weights of the net of those that are trained, in every pass.

        Returns
        -------
        Net
            The net that trains them.
        """
        other = copy.copy(self)
        other._initial = dict(weights)
        other.names = tuple(weights)
        other._constants = {**self._constants, **{name: w for name, w in constants.items() if name not in weights}}
        parts: dict[str, list[str]] = {}
        for name in weights:
            parts.setdefault(_name_whole(name), []).append(name)
        other._layout = tuple(part for name in self._layout for part in parts.get(name, (name,)))
        other._merge = merge
        return other

    def list_linear_weights(self) -> tuple[str, ...]:
        """Return the names of the matrices of linear layers and of attention.

        Returns
        -------
        tuple of str
            The names, in the order of the modules.
        """
        return find_linear_weights(self._training)

    def find_depth(self, name: str) -> int:
        """Return how many blocks below the head a weight is.

        Parameters
        ----------
        name : str
            The name of a weight, of its factors, or of an algorithm's copy of one, which has a prefix.

        Returns
        -------
        int
            From 0, of the head and of what an algorithm adds.
        """
        whole = _name_whole(name)
        ends = [n for n in self.depths if whole == n or whole.endswith(f".{n}")]
        return self.depths[max(ends, key=len)] if ends else 0

    def list_names_after(self, point: str) -> tuple[str, ...]:
        """Return the names of the trained weights that come after a point.

        Parameters
        ----------
        point : str
            The name of a point, one of `points`.

        Returns
        -------
        tuple of str
            The names, in the order of the layers.
        """
        after = self._layout[self._layout.index(point) + 1 :]
        return tuple(name for name in after if name in self._initial)

    def count_channels(self, point: str) -> int:
        """Return how many channels pass a point: as many as the last layer with weights before it gives.

        Parameters
        ----------
        point : str
            The name of a point, one of `points`.

        Returns
        -------
        int
            The number of channels.
        """
        before = [name for name in self._layout[: self._layout.index(point)] if name not in self.points]
        weights = {**self._constants, **self._initial}
        return int(weights[before[-1]].shape[0])

    def __call__(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Compute the logits.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        x : Tensor
            (row, *input) the inputs.
        key : Tensor, optional
            () that of a minibatch, in training; (domain,) where the rows are of several domains; None drops nothing.

        Returns
        -------
        Tensor
            (row, class) the logits; of regression (row,) the predictions.
        """
        return self._run(self._serving if self._has_statistics(params) else self._training, params, x, key)

    def features(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Compute the features: the inputs of the head.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        x : Tensor
            (row, *input) the inputs.
        key : Tensor, optional
            () that of a minibatch, in training; (domain,) where the rows are of several domains; None drops nothing.

        Returns
        -------
        Tensor
            (row, feature) the features.
        """
        return self._run(self._find_body(params), params, x, key)

    def domain_features(self, params: Params, episode: Episode) -> Tensor:
        """Compute the features of an episode's domains, in one pass.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        episode : Episode
            Minibatches of several domains.

        Returns
        -------
        Tensor
            (domain, batch, feature) the features.
        """
        with split_batches(self._find_body(params), episode.domains):
            z = self.features(params, episode.x.flatten(0, 1), self._get_keys(episode))
        return z.reshape(*episode.x.shape[:2], *z.shape[1:])

    def head(self, params: Params, z: Tensor) -> Tensor:
        """Compute the logits of features.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        z : Tensor
            (row, feature) the features.

        Returns
        -------
        Tensor
            (row, class) the logits.
        """
        if self._head is None:
            raise _lacks_head()
        layer = self._training.get_submodule(self._head)
        return self._run(layer, {name: params[full] for name, full in self._name_head().items()}, z)

    def loss(self, params: Params, minibatch: Minibatch | tuple[Tensor, ...]) -> Tensor:
        """Compute the mean loss over the rows of one domain.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        minibatch : Minibatch or tuple
            (x, y, key), such as `episode.minibatch(i)`; a net without dropout needs no key.

        Returns
        -------
        Tensor
            () the loss.
        """
        x, y, *keys = minibatch
        if self.has_dropout and (not keys or keys[0] is None):
            raise UsageError(
                "The net has dropout, whose masks are drawn from the key of a minibatch, and this one has none: pass "
                "episode.minibatch(i), or (x, y, key). The loss without dropout is net.criterion(net(params, x), y)."
            )
        return self.criterion(self(params, x, *keys), y)

    def domain_logits(self, params: Params, episode: Episode) -> Tensor:
        """Compute the logits of an episode's domains, in one pass.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        episode : Episode
            Minibatches of several domains.

        Returns
        -------
        Tensor
            (domain, batch, class) the logits.
        """
        with split_batches(self._training, episode.domains):
            logits = self(params, episode.x.flatten(0, 1), self._get_keys(episode))
        return logits.reshape(*episode.y.shape[:2], *logits.shape[1:])

    def losses(self, params: Params, episode: Episode) -> Tensor:
        """Compute the loss of each domain of an episode at the same weights, in one pass.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        episode : Episode
            Minibatches of several domains.

        Returns
        -------
        Tensor
            (domain,) the losses.
        """
        return self.losses_from_logits(self.domain_logits(params, episode), episode.y)

    def row_losses(self, params: Params, episode: Episode) -> Tensor:
        """Compute the loss of each row, in one pass: the criterion on a batch of that row alone.

        Where the criterion is a weighted mean, such as cross-entropy with class weights that divides by their sum, a
        row alone has weight 1, and the mean of the rows is not the loss of the batch.

        Parameters
        ----------
        params : Params
            The weights, by name; with BatchNorm statistics if they are deployed.
        episode : Episode
            Minibatches of several domains.

        Returns
        -------
        Tensor
            (domain, batch) the losses.
        """
        logits, y = self.domain_logits(params, episode).flatten(0, 1), episode.y.flatten(0, 1)
        return self.losses_from_logits(logits.unsqueeze(1), y.unsqueeze(1)).reshape(episode.y.shape[:2])

    def losses_from_logits(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute the loss of each domain from its logits.

        Parameters
        ----------
        logits : Tensor
            (domain, batch, class) the logits.
        y : Tensor
            (domain, batch) the labels.

        Returns
        -------
        Tensor
            (domain,) the losses.
        """
        # vmap asks a function for its name, anything else for its repr, and a repr with numbers reads from the device.
        return vmap(lambda rows, labels: self.criterion(rows, labels))(logits, y)

    def pool_statistics(self, parts: Sequence[Params]) -> Params:
        """Return the statistics to deploy, from those of several minibatches of equal size.

        Parameters
        ----------
        parts : sequence of Params
            What `statistics` returned for each minibatch.

        Returns
        -------
        Params
            The statistics, named as the running ones.
        """
        return pool_statistics(parts, self.policy)

    def statistics(self, params: Params, x: Tensor) -> Params:
        """Measure what reaches every BatchNorm layer, where training normalizes by the minibatch.

        Nothing is dropped: the net that serves drops nothing either.

        Parameters
        ----------
        params : Params
            The weights, by name.
        x : Tensor
            (row, *input) the inputs of a minibatch.

        Returns
        -------
        Params
            Means and variances, named as the running ones; empty where training does not normalize by the minibatch.
        """
        if not self.on_batch:
            return {}
        with record_statistics(self._training, unbiased=self.policy == "running") as statistics:
            self._run(self._training, params, x)
        return statistics

    @property
    def head_names(self) -> tuple[str, ...]:
        """The names of the head's weights."""
        return tuple(self._name_head().values())

    @property
    def has_features(self) -> bool:
        """Whether weights below the head are trained."""
        return 0 < len(self.head_names) < len(self.names)

    def _name_head(self) -> dict[str, str]:
        """Return the names of the head's weights in the net, by their names in the head."""
        if self._head is None:
            return {}
        layer, prefix = self._training.get_submodule(self._head), f"{self._head}." if self._head else ""
        return {name: f"{prefix}{name}" for name, _ in layer.named_parameters()}

    def _find_body(self, params: Params) -> nn.Module:
        body = self._bodies[self._has_statistics(params)]
        if body is None:
            raise _lacks_head()
        return body

    def _has_statistics(self, params: Params) -> bool:
        return self.on_batch and any(name in params for name in self._statistics)

    def _get_keys(self, episode: Episode) -> Tensor | None:
        return episode.keys if self.has_dropout or self._untraced else None

    def _run(self, module: nn.Module, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers())
        names = (name for name, _ in named if name not in self._twins)
        params = params if self._merge is None else self._merge(params)
        state = {name: params[name] if name in params else self._constants[name] for name in names}
        if self._untraced and key is not None:
            self._watch(module, state, x)
        points = apply_at_points(module, self._functions) if self._functions else nullcontext()
        with draw_masks(find_pass(module) if self.has_dropout else None, key), points, compose_where_nested():
            out: Tensor = functional_call(module, state, (x,))
        return out

    def _watch(self, module: nn.Module, state: Params, x: Tensor) -> None:
        """Run once in train mode, and refuse what draws random numbers, as tracing could not show it."""
        with _in_train_mode(module), RefuseRandomFunctions(), torch.no_grad():
            functional_call(module, state, (x,))
        self._untraced.clear()


@contextmanager
def _in_train_mode(module: nn.Module) -> Iterator[None]:
    module.train()
    try:
        yield
    finally:
        module.eval()


def _lacks_head() -> UsageError:
    return UsageError("The net does not end in a linear layer, so it has no head and no features to split at.")


def check_outputs(name: str, net: Callable[[Tensor], Any], x: Tensor, outputs: int) -> None:
    """Raise a UsageError unless a net, which may be the user's own, reads these rows and gives a logit for each class,
    or a number."""
    kind = str(x.dtype).removeprefix("torch.")
    with refuse_broken(f"{name} cannot read rows of shape {tuple(x.shape[1:])}, {kind}"), torch.no_grad():
        out = net(x)
    if not isinstance(out, Tensor) or tuple(out.shape) != (len(x), outputs):
        got = f"{list(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise UsageError(
            f"{name} gives {got} for {len(x)} rows, but it must give a tensor [{len(x)}, {outputs}]: a logit for each "
            "class, or the predicted number."
        )


def _find_head(module: nn.Module) -> str | None:
    """Return the name of the last layer if it is linear, skipping layers that change no vector in eval mode."""
    idle = (nn.Identity, nn.Dropout, PureDropout, Point, nn.Flatten)
    layers = [(name, m) for name, m in module.named_modules() if not list(m.children()) and not isinstance(m, idle)]
    if not layers or not isinstance(layers[-1][1], nn.Linear):
        return None
    return str(layers[-1][0])


def _remove_head(module: nn.Module, head: str | None) -> nn.Module | None:
    if head is None:
        return None
    if head == "":
        return nn.Identity()
    body = copy.deepcopy(module)
    body.set_submodule(head, nn.Identity())
    return body


class RecomputingNet(Net):
    """The same net, whose losses keep only their inputs until they are differentiated.

    This is gradient checkpointing that nests: activations are dropped, and computed again for the gradient. The
    gradient is checkpointed too, so gradients of gradients hold the activations of one minibatch at a time.
    """

    def __init__(self, net: Net) -> None:
        self.__dict__.update(net.__dict__)

    def loss(self, params: Params, minibatch: Minibatch | tuple[Tensor, ...]) -> Tensor:
        parts = (part for part in minibatch if part is not None)  # x, y and, with dropout, a key
        return _recompute(lambda weights, *parts: Net.loss(self, weights, parts), params, *parts)

    def losses(self, params: Params, episode: Episode) -> Tensor:
        def compute(weights: Params, x: Tensor, y: Tensor, domain: Tensor, key: Tensor) -> Tensor:
            return Net.losses(self, weights, episode._replace(x=x, y=y, domain=domain, key=key))

        return _recompute(compute, params, episode.x, episode.y, episode.domain, episode.key)


def _recompute(function: Callable[..., Tensor], params: Params, *parts: Tensor) -> Tensor:
    """function(params, *parts), keeping only these for the gradient."""
    names = tuple(params)

    def compute(*tensors: Tensor) -> Tensor:
        return function(dict(zip(names, tensors[len(parts) :], strict=True)), *tensors[: len(parts)])

    out: Tensor = _Recompute.apply(compute, *parts, *params.values())  # type: ignore[no-untyped-call]
    return out


class _Recompute(Function):
    """function(*tensors), keeping only the tensors for the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Callable[..., Any], *tensors: Tensor) -> Any:
        return function(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.function, ctx.one = inputs[0], isinstance(output, Tensor)
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        function, one, inputs = ctx.function, ctx.one, ctx.saved_tensors
        moving = [i for i, tensor in enumerate(inputs) if tensor.is_floating_point()]

        def back(*tensors: Tensor) -> Any:
            fixed, incoming = tensors[: len(inputs)], tensors[len(inputs) :]

            def compute(*moved: Tensor) -> Any:
                now = dict(zip(moving, moved, strict=True))
                return function(*(now.get(i, tensor) for i, tensor in enumerate(fixed)))

            return vjp(compute, *(fixed[i] for i in moving))[1](incoming[0] if one else incoming)

        by_position = dict(zip(moving, _Recompute.apply(back, *inputs, *gradients), strict=True))  # type: ignore[no-untyped-call]
        return None, *(by_position.get(i) for i in range(len(inputs)))


def _name_whole(name: str) -> str:
    """Return the name of the weight that a factor is of; another name as it is."""
    return next((name.removesuffix(end) for end in FACTORS if name.endswith(end)), name)
