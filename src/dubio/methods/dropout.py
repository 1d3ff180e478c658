"""The 18 set-ups of the text paper, numbered 0 to 17 there.

They are {no, fixed, concrete} dropout × {deterministic, MC} × {softmax, heteroscedastic} × {one model, an ensemble},
without those that mean nothing: nine methods, each with its ensemble.
"""

from __future__ import annotations

from dataclasses import dataclass

from dubio.core.registry import Ensemble, method
from dubio.methods.arguments import Training, at_least_one_sample
from dubio.methods.recipe import Recipe
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.network import Edit
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit


@dataclass(frozen=True)
class FixedRate:
    """Dropout of a fixed rate, with weight decay.

    Attributes:
        p: The probability that an input is dropped.
        shrink: Decay of the weights after every step.
    """

    p: float = 0.5
    shrink: float = 1e-4

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of a network."""
        return (DropoutEdit(self.p),)


@dataclass(frozen=True)
class LearnedRate:
    """Concrete dropout: a rate learned at every site.

    Attributes:
        start_rate: The rate to start from.
        length_scale: l of the penalty on weights and rates.
    """

    start_rate: float = 0.1
    length_scale: float = 0.1

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of a network."""
        return (ConcreteDropoutEdit(self.start_rate, self.length_scale),)


@method(
    "deterministic",
    family="dropout",
    colour=0,
    samples_from="one network",
    role="reference",
    ensemble=Ensemble(
        "deep-ensemble", "Deep ensemble", "Independent deterministic networks; their probabilities are averaged."
    ),
)
def deterministic(*, training: Training = Training()) -> Recipe:
    """One network, no dropout, no weight decay."""
    return training.recipe("deterministic", "Deterministic")


@method(
    "regularised",
    family="dropout",
    colour=1,
    samples_from="one network",
    ensemble=Ensemble(
        "deep-ensemble-regularised",
        "Deep ensemble, regularised",
        "Independent regularised networks; their probabilities are averaged.",
    ),
)
def regularised(*, training: Training = Training(), rate: FixedRate = FixedRate()) -> Recipe:
    """One network trained with dropout and weight decay; no noise at prediction."""
    return training.recipe("regularised", "Regularised", edits=rate.edits, shrink=rate.shrink)


@method("mc-dropout", family="dropout", colour=2, samples_from="one solution", ensemble=True)
def mc_dropout(*, training: Training = Training(), rate: FixedRate = FixedRate(), samples: int = 10) -> Recipe:
    """The regularised network, with dropout drawn at prediction too."""
    return training.recipe(
        "mc-dropout",
        "MC dropout",
        edits=rate.edits,
        shrink=rate.shrink,
        samples=at_least_one_sample("mc-dropout", samples),
    )


@method("heteroscedastic", family="dropout", colour=5, samples_from="one network", ensemble=True)
def heteroscedastic(*, training: Training = Training(), rate: FixedRate = FixedRate(), draws: int = 10) -> Recipe:
    """The regularised network with learned noise on its logits."""
    return training.recipe(
        "heteroscedastic", "Heteroscedastic", edits=rate.edits, shrink=rate.shrink, head=Heteroscedastic(draws)
    )


@method("mc-heteroscedastic", family="dropout", colour=6, samples_from="one solution", ensemble=True)
def mc_heteroscedastic(
    *, training: Training = Training(), rate: FixedRate = FixedRate(), draws: int = 10, samples: int = 10
) -> Recipe:
    """The heteroscedastic network, with dropout drawn at prediction too."""
    return training.recipe(
        "mc-heteroscedastic",
        "MC heteroscedastic",
        edits=rate.edits,
        shrink=rate.shrink,
        head=Heteroscedastic(draws),
        samples=at_least_one_sample("mc-heteroscedastic", samples),
    )


@method("concrete-dropout", family="dropout", colour=3, samples_from="one network", ensemble=True)
def concrete_dropout(*, training: Training = Training(), rate: LearnedRate = LearnedRate()) -> Recipe:
    """One network with learned dropout rates; no noise at prediction."""
    return training.recipe("concrete-dropout", "Concrete dropout", edits=rate.edits)


@method("mc-concrete-dropout", family="dropout", colour=4, samples_from="one solution", ensemble=True)
def mc_concrete_dropout(
    *, training: Training = Training(), rate: LearnedRate = LearnedRate(), samples: int = 10
) -> Recipe:
    """The concrete-dropout network, with dropout drawn at prediction too."""
    return training.recipe(
        "mc-concrete-dropout",
        "MC concrete dropout",
        edits=rate.edits,
        samples=at_least_one_sample("mc-concrete-dropout", samples),
    )


@method("heteroscedastic-concrete-dropout", family="dropout", colour=7, samples_from="one network", ensemble=True)
def heteroscedastic_concrete_dropout(
    *, training: Training = Training(), rate: LearnedRate = LearnedRate(), draws: int = 10
) -> Recipe:
    """Learned dropout rates and learned noise on the logits; no dropout at prediction."""
    return training.recipe(
        "heteroscedastic-concrete-dropout",
        "Heteroscedastic concrete dropout",
        edits=rate.edits,
        head=Heteroscedastic(draws),
    )


@method("mc-heteroscedastic-concrete-dropout", family="dropout", colour=8, samples_from="one solution", ensemble=True)
def mc_heteroscedastic_concrete_dropout(
    *, training: Training = Training(), rate: LearnedRate = LearnedRate(), draws: int = 10, samples: int = 10
) -> Recipe:
    """The heteroscedastic concrete-dropout network, with dropout drawn at prediction too."""
    return training.recipe(
        "mc-heteroscedastic-concrete-dropout",
        "MC heteroscedastic concrete dropout",
        edits=rate.edits,
        head=Heteroscedastic(draws),
        samples=at_least_one_sample("mc-heteroscedastic-concrete-dropout", samples),
    )
