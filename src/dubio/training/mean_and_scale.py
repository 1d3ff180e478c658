"""An optimiser of Gaussian weights: one way for their means and everything else, Adam for log σ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Adam as AdamSteps
from torch.optim import Optimizer

from dubio.core.errors import UserError
from dubio.core.specs import name_of, part
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.network import Model
from dubio.training.optimisers import SGD, Adam, Optimiser, check_rate


class JointSteps(Optimizer):
    """Several optimisers, each with parameters of its own, as one: they share its groups and its state.

    Attributes:
        parts: The optimisers.
    """

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        """Join optimisers that have not taken a step yet."""
        super().__init__([group for one in parts for group in one.param_groups], {})
        self.parts = tuple(parts)
        self._join()

    def _join(self) -> None:
        first = 0
        for one in self.parts:
            one.state = self.state
            one.param_groups = self.param_groups[first : first + len(one.param_groups)]
            first += len(one.param_groups)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """A step of each."""
        for one in self.parts:
            one.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state over, and share it again."""
        super().load_state_dict(state_dict)
        self._join()


@part("mean_and_scale")
@dataclass(frozen=True)
class MeanAndScale(Optimiser):
    """SGD or Adam on μ and on what is not Gaussian; Adam with a constant rate, and no decay, on log σ.

    Attributes:
        mean: Moves the means; its ``l2`` is the μ² part of the KL divergence.
        scale_lr: The rate of log σ, which no schedule changes.
    """

    mean: Adam | SGD = field(default_factory=SGD)
    scale_lr: float = 1e-3

    def __post_init__(self) -> None:
        check_rate("mean_and_scale", self.scale_lr, "scale_lr")

    @property
    def l2(self) -> float:
        """The decay of the means."""
        return self.mean.l2

    def build(self, model: Model) -> Optimizer:
        """Both as one; refuses a model without Gaussian weights."""
        scales = [layer.log_sigma for layer in model.gaussians()]
        if not scales:
            raise UserError("mean_and_scale: this model has no Gaussian weights; add the edit gaussian_weights.")
        known = {id(p) for p in scales}
        mean = self.mean.build(model)
        for group in mean.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in known]
        mean.param_groups = [group for group in mean.param_groups if group["params"]]
        group = {"params": scales, "weight_decay": 0.0, "decays": False}
        return JointSteps([mean, AdamSteps([group], lr=self.scale_lr, fused=True)])

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Scale the rate of the means."""
        if not isinstance(optimiser, JointSteps):
            raise TypeError(f"{type(optimiser).__name__} was not built here")
        self.mean.set_factor(optimiser.parts[0], factor)


def check_prior(name: str, edit: GaussianWeights, optimiser: Optimiser) -> None:
    """Refuse an optimiser whose weight decay is not that of the prior.

    Args:
        name: The method's name, for the message.
        edit: The Gaussian weights.
        optimiser: What moves their means.

    Raises:
        UserError: When the μ² part of the KL divergence would be missing, or another one.
    """
    decay = getattr(optimiser, "l2", 0.0)
    if decay != edit.l2:
        raise UserError(
            f"{name}: the prior of gaussian_weights has l2={edit.l2}, the optimiser {name_of(optimiser)!r} has "
            f"l2={decay}; the decay of the means is part of the prior, so that both must be the same."
        )
