"""The collector of the Laplace approximation: a Gaussian around the trained weights, with their curvature."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from dubio.core.errors import UserError
from dubio.core.specs import added, part
from dubio.core.validate import NonNegative, Positive, PositiveFloat
from dubio.inference.augmentation import Views
from dubio.inference.laplace import Damping, LaplaceDraws, LaplaceGaussian, StoredLaplace
from dubio.networks.network import Model
from dubio.training.collectors import Collected, Collector, Epoch, FinishContext
from dubio.training.laplace.curvature import backward_passes
from dubio.training.laplace.selection import Minimum, Trials, best_prior, log_evidence, minimise_on_log_grid
from dubio.training.laplace.structures import Curvature, Structure, check_structure, curvature_blocks, layers_of
from dubio.training.schedules import Schedule

Prior = Literal["decay", "marginal-likelihood", "validation"]

SCALES = (0.01, 10.0)
"""Range of the noise scales on the grid; with quarter-decades beyond its ends, 0.0056 to 18.

The pitfalls paper's Table 3 has 0.004 (WideResNet28x10 on CIFAR-100 with views; the others 0.018 and more) to 6.8. A
scale at an end of the range is marked ``at_bound`` in the fit's record.
"""

DECAYS = (1e-6, 1e-2)
"""Range of the weight decay λ whose prior precision N·λ is chosen on validation: 5.6e-7 to 0.018."""

STORED: dict[Structure, float] = {"kron": 10.0, "diag": 2.0, "last-full": 2.0, "last-kron": 1.5, "last-diag": 1.5}
"""Approximate stored size in weight states: the factor of a 3×3 convolution's inputs is 9 times its weights."""


@part("laplace")
@dataclass(frozen=True)
class Laplace(Collector):
    """A Gaussian around the weights at the end of a training, N(θ*, scale²·(N·F + δ·I)⁻¹), and draws from it.

    Attributes:
        structure: ``kron`` and ``diag``: all dense and convolutional layers, Kronecker-factored or diagonal;
            ``last-full``, ``last-kron``, ``last-diag``: the last layer alone.
        draws: Number of weight draws, each of which predicts once.
        prior: Source of δ. ``decay``: N·λ, λ the optimiser's l2; ``marginal-likelihood``: the δ with the largest
            evidence; ``validation``: N·λ with the λ that is best on validation at the given scale, or at 1.
        scale: Factor of the deviations; by default chosen on validation, one value without random views of the
            examples and one with them.
        damping: How the prior enters Kronecker factors: ``exact``, or split between them with the factor π (``pi``;
            ``pi_untransposed`` repeats an erratum, see :class:`~dubio.inference.laplace.Kronecker`).
        norm_examples: Largest number of training examples that the batch-norm statistics of a draw are of; 0 for all.
        kfac_sums: Erratum of the pitfalls paper's code: both Kronecker factors are sums over the training examples.
    """

    structure: Structure = "kron"
    draws: Positive = 20
    prior: Prior = "marginal-likelihood"
    scale: PositiveFloat | None = None
    damping: Damping = "exact"
    norm_examples: NonNegative = added(0)  # noqa: RUF009
    kfac_sums: bool = added(False)

    continues: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.structure.endswith("kron") and (self.damping != "exact" or self.kfac_sums):
            option = "kfac_sums" if self.kfac_sums else f"damping={self.damping!r}"
            reason = f"structure={self.structure!r} has none: use damping 'exact', or a structure kron or last-kron"
            raise UserError(f"laplace: {option} needs Kronecker factors; {reason}.")

    @property
    def chooses(self) -> str:
        """The noise scale unless it is given, or the prior."""
        if self.scale is None:
            return "laplace chooses the scale of its noise on validation data unless scale is given"
        return "laplace chooses its prior on validation data (prior='validation')" if self.prior == "validation" else ""

    def check(self, model: Model, batches: Iterable[Any] = ()) -> None:
        """Refuse a model without such a curvature."""
        check_structure(model, self.structure)
        if not self.structure.startswith("last-"):
            layers_of(model, batches)

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Remember the last epoch."""
        return Collected(facts={"epoch": epoch.number})

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> LaplaceDraws:
        """Return the Gaussian at the model's weights, with a scale for predictions with and without views."""
        curvature = curvature_blocks(model, self.structure, self.damping, context, kfac_sums=self.kfac_sums)
        named = dict(model.named_parameters())
        point = {name: named[name].detach().cpu().clone() for block in curvature.blocks for name in block.matrix.names}
        gaussian = LaplaceGaussian(point, curvature.blocks, prior=1.0)
        refreshes = not self.structure.startswith("last-")
        trials = Trials(model, context, refreshes=refreshes, norm_examples=self.norm_examples)
        prior = self._prior(gaussian, trials, context)
        gaussian = replace(gaussian, prior=prior.value)
        plain = self._scale(gaussian, trials, None)
        draws = trials.draws(gaussian.scaled(plain.value), self.draws)
        viewed = None if context.augmentation is None else self._scale(gaussian, trials, Views(context.augmentation))
        record = _record(curvature, gaussian, len(context.train.encoded), prior, plain, viewed)
        collected.facts["record"] = {"laplace": record}
        posterior = LaplaceDraws(draws)
        if viewed is not None:
            other = draws if viewed.value == plain.value else trials.draws(gaussian.scaled(viewed.value), self.draws)
            posterior = LaplaceDraws(draws, other, viewed.value)
        trials.reset()
        return posterior

    @property
    def form(self) -> StoredLaplace:
        """The distribution, with the scale for views where predictions use views."""
        return StoredLaplace(self.draws, self.damping)

    def states(self, schedule: Schedule, epochs: int) -> int:
        """Return the number of draws."""
        return self.draws

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """Return the size of the weights and their curvature, whatever the number of draws."""
        return STORED[self.structure]

    def passes(self, model: Model, examples: int) -> float:
        """Return one forward and the backward passes, each counted twice; with batch-norm also those for statistics."""
        if self.structure.startswith("last-"):
            return 1
        return 1 + 2 * backward_passes(model) + Trials.passes(model, self.draws, self.norm_examples, examples)

    def _prior(self, gaussian: LaplaceGaussian, trials: Trials, context: FinishContext) -> Minimum:
        """Return δ, and whether its search ended at a bound."""
        examples = len(context.train.encoded)
        if self.prior == "marginal-likelihood":
            return Minimum(best_prior(gaussian.blocks, squared_norm=gaussian.squared_norm()))
        if self.prior == "decay":
            check_decay(context.l2)
            return Minimum(examples * context.l2)
        scaled = gaussian.scaled(1.0 if self.scale is None else self.scale)
        best = minimise_on_log_grid(lambda decay: trials.nll(replace(scaled, prior=examples * decay), None), *DECAYS)
        return best._replace(value=examples * best.value)

    def _scale(self, gaussian: LaplaceGaussian, trials: Trials, views: Views | None) -> Minimum:
        """Return the scale for predictions with or without views, and whether its search ended at a bound."""
        if self.scale is not None:
            return Minimum(self.scale)
        return minimise_on_log_grid(lambda scale: trials.nll(gaussian.scaled(scale), views), *SCALES)


def check_decay(l2: float) -> None:
    """Refuse a weight decay that gives no prior.

    Raises:
        UserError: Unless it is positive.
    """
    if not l2 > 0.0:
        hint = f"which must be positive; given {l2}. Set l2, or prior='marginal-likelihood'"
        raise UserError(f"laplace: prior='decay' takes its precision N·l2 from the training's weight decay l2, {hint}.")


def _record(
    curvature: Curvature, gaussian: LaplaceGaussian, rows: int, prior: Minimum, plain: Minimum, viewed: Minimum | None
) -> dict[str, Any]:
    """Return the entries of a fit's record: the prior's precision, the noise scales without and with views."""
    likelihood, norm = curvature.log_likelihood, gaussian.squared_norm()
    return {
        "prior_precision": gaussian.prior,
        "decay": gaussian.prior / rows,
        "decay_at_bound": prior.at_bound,
        "log_likelihood": likelihood,
        "log_evidence": log_evidence(gaussian.blocks, gaussian.prior, log_likelihood=likelihood, squared_norm=norm),
        "scale": plain.value,
        "scale_at_bound": plain.at_bound,
        "scale_with_views": None if viewed is None else viewed.value,
        "scale_with_views_at_bound": None if viewed is None else viewed.at_bound,
        **curvature.facts,
    }
