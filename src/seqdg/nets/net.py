"""A module as a pure function of its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from seqdg.base.episode import Episode, Minibatch, Params
from seqdg.base.errors import UsageError, unknown
from seqdg.nets.batchnorm import POLICIES, has_batchnorm, in_parts, purified, recorded, without_statistics
from seqdg.nets.folding import folded

Criterion = Callable[[Tensor, Tensor], Tensor]


class Net:
    """`net(params, x)` is the module's output with its weights replaced by `params`; nothing is changed on the way.

    Weights that carry BatchNorm statistics (`statistics` adds them to deployed weights) are served with these;
    weights without are in training, and normalize by the policy. The head is the module's last linear layer; what
    enters it are the features. Weights that do not require a gradient are constants: not among `params`, never trained.
    """

    def __init__(self, module: nn.Module, batchnorm: str = "frozen", loss: Criterion = cross_entropy) -> None:
        if batchnorm not in POLICIES:
            raise unknown("BatchNorm policy", batchnorm, POLICIES)
        if batchnorm == "none" and has_batchnorm(module):
            raise UsageError("The net has BatchNorm layers but its policy is 'none'. Choose 'frozen' or 'recalibrate'.")
        if batchnorm == "frozen" and (layer := without_statistics(module)) is not None:
            raise UsageError(
                f"BatchNorm layer '{layer}' keeps no running statistics that could be frozen. Choose 'recalibrate'."
            )
        self.policy, self.criterion = batchnorm, loss
        self.on_batch = batchnorm == "recalibrate" and has_batchnorm(module)
        pure = purified(module, on_batch=self.on_batch).eval()
        own = dict(pure.named_parameters())
        self._initial = {name: p.detach().clone() for name, p in own.items() if p.requires_grad}
        fixed = {name: p for name, p in own.items() if not p.requires_grad}
        self._constants = {name: b.detach().clone() for name, b in (*pure.named_buffers(), *fixed.items())}
        self.names = tuple(self._initial)
        self._twins = {name for name, _ in pure.named_parameters(remove_duplicate=False)} - own.keys()  # tied weights
        self._statistics = frozenset(n for n in self._constants if n.endswith(("running_mean", "running_var")))
        self._head = _last_linear(pure)
        self._serving = folded(purified(module, on_batch=False).eval())
        self._training = folded(pure) if self.on_batch else self._serving
        self._bodies = tuple(_without_head(m, self._head) for m in (self._training, self._serving))
        if not self.names and fixed:
            raise UsageError("All weights of the net are frozen (requires_grad=False): there is nothing to train.")
        if self._head is not None and (stuck := fixed.keys() & self._head_names().values()):
            raise UsageError(
                f"The last layer of the net is frozen ({min(stuck)} has requires_grad=False), but it makes the logits: "
                "let it be trained."
            )

    def params(self) -> Params:
        """The weights that are trained, as the module came with them; a fresh copy."""
        return {name: p.clone() for name, p in self._initial.items()}

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Net:
        """The same net whose constants (BatchNorm statistics, frozen weights) and initial weights are on a device."""
        other = copy.copy(self)
        other._constants = {
            name: b.to(device, dtype if b.is_floating_point() else None) for name, b in self._constants.items()
        }
        other._initial = {name: p.to(device, dtype) for name, p in self._initial.items()}
        return other

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Logits."""
        return self._run(self._serving if self._is_served(params) else self._training, params, x)

    def features(self, params: Params, x: Tensor) -> Tensor:
        """What enters the head."""
        body = self._bodies[1 if self._is_served(params) else 0]
        if body is None:
            raise UsageError("The net does not end in a linear layer, so it has no head and no features to split at.")
        return self._run(body, params, x)

    def domain_features(self, params: Params, x: Tensor) -> Tensor:
        """(domain, batch, feature) of (domain, batch, *input), in one pass."""
        body = self._bodies[1 if self._is_served(params) else 0]
        with in_parts(body or self._training, len(x)):
            z = self.features(params, x.flatten(0, 1))
        return z.reshape(*x.shape[:2], *z.shape[1:])

    def head(self, params: Params, z: Tensor) -> Tensor:
        """Logits of features."""
        if self._head is None:
            raise UsageError("The net does not end in a linear layer, so it has no head and no features to split at.")
        layer = self._training.get_submodule(self._head)
        return self._run(layer, {name: params[full] for name, full in self._head_names().items()}, z)

    def loss(self, params: Params, minibatch: Minibatch) -> Tensor:
        """Mean over one domain's (x, y)."""
        x, y = minibatch
        return self.criterion(self(params, x), y)

    def losses(self, params: Params, episode: Episode) -> Tensor:
        """(domain,) the loss of each row of an episode at the same weights, in one pass."""
        with in_parts(self._training, episode.domains):
            logits = self(params, episode.x.flatten(0, 1))
        return self.losses_of(logits.reshape(*episode.y.shape[:2], *logits.shape[1:]), episode.y)

    def losses_of(self, logits: Tensor, y: Tensor) -> Tensor:
        """(domain,) of logits (domain, batch, class) and labels (domain, batch)."""
        # vmap asks a function for its name, and anything else for its repr: one that shows numbers reads the device.
        return vmap(lambda own, labels: self.criterion(own, labels))(logits, y)

    def statistics(self, params: Params, x: Tensor) -> Params:
        """Mean and variance that reach every BatchNorm under `recalibrate`, by the names of the running ones."""
        if not self.on_batch:
            return {}
        with recorded(self._training) as found:
            self._run(self._training, params, x)
        return found

    @property
    def head_names(self) -> tuple[str, ...]:
        """Of the head's weights among `names`."""
        return tuple(self._head_names().values()) if self._head is not None else ()

    @property
    def has_features(self) -> bool:
        """Whether anything is learned below the head."""
        return self._head is not None and len(self.head_names) < len(self.names)

    def _head_names(self) -> dict[str, str]:
        assert self._head is not None
        layer = self._training.get_submodule(self._head)
        dot = "." if self._head else ""
        return {name: f"{self._head}{dot}{name}" for name, _ in layer.named_parameters()}

    def _is_served(self, params: Params) -> bool:
        return self.on_batch and any(name in params for name in self._statistics)

    def _run(self, module: nn.Module, params: Params, x: Tensor) -> Tensor:
        named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers())
        names = (name for name, _ in named if name not in self._twins)
        state = {name: params[name] if name in params else self._constants[name] for name in names}
        out: Tensor = functional_call(module, state, (x,))
        return out


def _last_linear(module: nn.Module) -> str | None:
    """Name of the head: the last layer, if it is linear, but for those that change no vector in eval mode."""
    idle = (nn.Identity, nn.Dropout, nn.Flatten)
    layers = [(name, m) for name, m in module.named_modules() if not list(m.children()) and not isinstance(m, idle)]
    if not layers or not isinstance(layers[-1][1], nn.Linear):
        return None
    return str(layers[-1][0])


def _without_head(module: nn.Module, head: str | None) -> nn.Module | None:
    if head is None:
        return None
    if head == "":
        return nn.Identity()
    body = copy.deepcopy(module)
    body.set_submodule(head, nn.Identity())
    return body
