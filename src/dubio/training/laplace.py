"""The Laplace approximation: trained weights become the mean of a Gaussian whose precision is the curvature there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor

from dubio.data.augmentation import Views
from dubio.errors import UserError
from dubio.networks.network import Model
from dubio.parts import part
from dubio.posteriors.evidence import best_prior, log_evidence
from dubio.posteriors.laplace import LaplaceGaussian
from dubio.posteriors.laplace_blocks import Damping
from dubio.posteriors.laplace_draws import LaplaceDraws
from dubio.training.collectors import Collected, Collector
from dubio.training.curvature import backward_passes
from dubio.training.finishing import FinishContext
from dubio.training.laplace_structures import Curved, Structure, curved
from dubio.training.laplace_trials import Trials
from dubio.training.log_grid import least_on_log_grid
from dubio.training.schedules import Schedule

Prior = Literal["decay", "marginal-likelihood", "validation"]

SCALES = (0.01, 10.0)
"""Between these the noise scale is looked for; the pitfalls paper's Table 3 has 0.004 to 6.8."""

DECAYS = (1e-6, 1e-2)
"""Between these the weight decay λ is looked for whose prior precision N·λ does best on validation."""

STORED: dict[Structure, float] = {"kron": 10.0, "diag": 2.0, "last-full": 2.0, "last-kron": 1.5, "last-diag": 1.5}
"""Roughly what is stored, as a multiple of one weight state: the factor of a 3×3 convolution's inputs is 9 times it."""


@part("laplace")
@dataclass(frozen=True)
class Laplace(Collector):
    """A Gaussian around the weights at the end of a training, N(θ*, scale²·(N·F + δ·I)⁻¹), and draws from it.

    Attributes:
        structure: ``kron`` and ``diag``: of all dense and convolutional layers, Kronecker-factored or diagonal;
            ``last-full``, ``last-kron``, ``last-diag``: of the last layer alone.
        draws: Weights drawn, each predicting once.
        prior: Where δ comes from. ``decay``: N·λ, λ the optimiser's l2; ``marginal-likelihood``: the δ of the largest
            evidence; ``validation``: N·λ with the λ that does best there at the scale given, or at 1.
        scale: What deviations are multiplied by; if left out, what does best on validation: one value without random
            views of the examples and one with them.
        damping: How the prior enters Kronecker factors: ``exact``, or split between them with the factor π (``pi``).
    """

    structure: Structure = "kron"
    draws: int = 20
    prior: Prior = "marginal-likelihood"
    scale: float | None = None
    damping: Damping = "exact"

    continues: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, allowed in (("structure", Structure), ("prior", Prior), ("damping", Damping)):
            if getattr(self, name) not in get_args(allowed):
                raise UserError(
                    f"laplace: {name} must be one of {', '.join(get_args(allowed))}; given {getattr(self, name)!r}."
                )
        if self.damping == "pi" and not self.structure.endswith("kron"):
            raise UserError(
                f"laplace: damping='pi' splits the prior between two Kronecker factors; structure={self.structure!r} "
                "has none: use 'exact', or a structure kron or last-kron."
            )
        if self.draws < 1:
            raise UserError(f"laplace: draws must be at least 1; given {self.draws}.")
        if self.scale is not None and not self.scale > 0.0:
            raise UserError(f"laplace: scale must be positive, or left out to be chosen; given {self.scale}.")

    def init(self, model: Model) -> Collected:
        """Nothing: the weights at the end are what counts."""
        return Collected()

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """Only remember where the end is."""
        return Collected(facts={"epoch": epoch})

    def finish(self, held: Collected, model: Model, context: FinishContext) -> LaplaceDraws:
        """The Gaussian at the model's weights, with a scale for each way of predicting."""
        found = curved(model, self.structure, self.damping, context)
        named = dict(model.named_parameters())
        point = {name: named[name].detach().cpu().clone() for block in found.blocks for name in block.matrix.names}
        gaussian = LaplaceGaussian(point, found.blocks, prior=1.0)
        trials = Trials(model, context, refreshes=not self.structure.startswith("last-"))
        gaussian = replace(gaussian, prior=self._prior(gaussian, trials, context))
        plain = self._scale(gaussian, trials, None)
        whole = trials.draws(gaussian.scaled(plain), self.draws)
        viewed = None if context.augmentation is None else self._scale(gaussian, trials, Views(context.augmentation))
        held.facts["record"] = {"laplace": _record(found, gaussian, plain, viewed, context)}
        if viewed is None:
            posterior = LaplaceDraws(whole)
        else:
            other = whole if viewed == plain else trials.draws(gaussian.scaled(viewed), self.draws)
            posterior = LaplaceDraws(whole, other, viewed)
        trials.leave()
        return posterior

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> LaplaceDraws:
        """The stored distribution, with the scale for predictions with views where there are views."""
        return LaplaceDraws.from_tensors(tensors, model, self.draws, self.damping, samples, views)

    def states(self, schedule: Schedule, epochs: int) -> int:
        """The draws."""
        return self.draws

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """The weights and their curvature, whatever the number of draws."""
        return STORED[self.structure]

    def passes(self, model: Model) -> int:
        """One forward and the backward ones, each worth two; with batch-norm the trials' and the draws' statistics."""
        if self.structure.startswith("last-"):
            return 1
        return 1 + 2 * backward_passes(model) + Trials.passes(model, self.draws)

    def _prior(self, gaussian: LaplaceGaussian, trials: Trials, context: FinishContext) -> float:
        examples = len(context.train.encoded)
        if self.prior == "marginal-likelihood":
            return best_prior(gaussian.blocks, squared_norm=gaussian.squared_norm())
        if self.prior == "decay":
            if not context.l2 > 0.0:
                raise UserError(
                    "laplace: prior='decay' takes the prior's precision N·l2 from the training's weight decay, which "
                    f"must be positive; given l2={context.l2}. Set l2, or prior='marginal-likelihood'."
                )
            return examples * context.l2
        scaled = gaussian.scaled(1.0 if self.scale is None else self.scale)
        best = least_on_log_grid(lambda decay: trials.nll(replace(scaled, prior=examples * decay), None), *DECAYS)
        return examples * best

    def _scale(self, gaussian: LaplaceGaussian, trials: Trials, views: Views | None) -> float:
        if self.scale is not None:
            return self.scale
        return least_on_log_grid(lambda scale: trials.nll(gaussian.scaled(scale), views), *SCALES)


def _record(
    found: Curved, gaussian: LaplaceGaussian, plain: float, viewed: float | None, context: FinishContext
) -> dict[str, Any]:
    """What a fit's record says of it."""
    evidence = log_evidence(
        gaussian.blocks,
        gaussian.prior,
        log_likelihood=found.log_likelihood,
        squared_norm=gaussian.squared_norm(),
    )
    return {
        "prior_precision": gaussian.prior,
        "decay": gaussian.prior / len(context.train.encoded),
        "log_likelihood": found.log_likelihood,
        "log_evidence": evidence,
        "scale": plain,
        "scale_with_views": viewed,
        **found.facts,
    }
