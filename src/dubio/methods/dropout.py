"""The 18 set-ups of the text paper, numbered 0 to 17 there.

They are {no, fixed, concrete} dropout × {deterministic, MC} × {softmax, heteroscedastic} × {one model, an ensemble},
without those that mean nothing: nine methods, each with its ensemble.
"""

from __future__ import annotations

from dubio.core.registry import Ensemble, method
from dubio.methods.arguments import FixedRate, LearnedRate, Training
from dubio.methods.recipe import Recipe
from dubio.networks.heads.heteroscedastic import Heteroscedastic

DEEP_ENSEMBLE = Ensemble(
    "deep-ensemble", "Deep ensemble", "Independent deterministic networks; their probabilities are averaged."
)
REGULARISED_ENSEMBLE = Ensemble(
    name="deep-ensemble-regularised",
    title="Deep ensemble, regularised",
    summary="Independent regularised networks; their probabilities are averaged.",
)


@method(
    "deterministic", family="dropout", colour=0, samples_from="one network", role="reference", ensemble=DEEP_ENSEMBLE
)
def deterministic(*, training: Training = Training()) -> Recipe:
    """One network, no dropout, no weight decay."""
    return training.recipe("deterministic", "Deterministic")


@method("regularised", family="dropout", colour=1, samples_from="one network", ensemble=REGULARISED_ENSEMBLE)
def regularised(*, training: Training = Training(), rate: FixedRate = FixedRate()) -> Recipe:
    """One network trained with dropout and weight decay; no noise at prediction."""
    return training.recipe("regularised", "Regularised", rate=rate)


@method("mc-dropout", family="dropout", colour=2, samples_from="one solution", ensemble=True)
def mc_dropout(*, training: Training = Training(), rate: FixedRate = FixedRate(), samples: int = 10) -> Recipe:
    """The regularised network, with dropout drawn at prediction too."""
    return training.recipe("mc-dropout", "MC dropout", rate=rate, samples=samples)


@method("heteroscedastic", family="dropout", colour=5, samples_from="one network", ensemble=True)
def heteroscedastic(*, training: Training = Training(), rate: FixedRate = FixedRate(), draws: int = 10) -> Recipe:
    """The regularised network with learned noise on its logits."""
    return training.recipe("heteroscedastic", "Heteroscedastic", rate=rate, head=Heteroscedastic(draws))


@method("mc-heteroscedastic", family="dropout", colour=6, samples_from="one solution", ensemble=True)
def mc_heteroscedastic(
    *, training: Training = Training(), rate: FixedRate = FixedRate(), draws: int = 10, samples: int = 10
) -> Recipe:
    """The heteroscedastic network, with dropout drawn at prediction too."""
    name, title = "mc-heteroscedastic", "MC heteroscedastic"
    return training.recipe(name, title, rate=rate, head=Heteroscedastic(draws), samples=samples)


@method("concrete-dropout", family="dropout", colour=3, samples_from="one network", ensemble=True)
def concrete_dropout(*, training: Training = Training(), rate: LearnedRate = LearnedRate()) -> Recipe:
    """One network with learned dropout rates; no noise at prediction."""
    return training.recipe("concrete-dropout", "Concrete dropout", rate=rate)


@method("mc-concrete-dropout", family="dropout", colour=4, samples_from="one solution", ensemble=True)
def mc_concrete_dropout(
    *, training: Training = Training(), rate: LearnedRate = LearnedRate(), samples: int = 10
) -> Recipe:
    """The concrete-dropout network, with dropout drawn at prediction too."""
    return training.recipe("mc-concrete-dropout", "MC concrete dropout", rate=rate, samples=samples)


@method("heteroscedastic-concrete-dropout", family="dropout", colour=7, samples_from="one network", ensemble=True)
def heteroscedastic_concrete_dropout(
    *, training: Training = Training(), rate: LearnedRate = LearnedRate(), draws: int = 10
) -> Recipe:
    """Learned dropout rates and learned noise on the logits; no dropout at prediction."""
    name, title = "heteroscedastic-concrete-dropout", "Heteroscedastic concrete dropout"
    return training.recipe(name, title, rate=rate, head=Heteroscedastic(draws))


@method("mc-heteroscedastic-concrete-dropout", family="dropout", colour=8, samples_from="one solution", ensemble=True)
def mc_heteroscedastic_concrete_dropout(
    *, training: Training = Training(), rate: LearnedRate = LearnedRate(), draws: int = 10, samples: int = 10
) -> Recipe:
    """The heteroscedastic concrete-dropout network, with dropout drawn at prediction too."""
    name, title = "mc-heteroscedastic-concrete-dropout", "MC heteroscedastic concrete dropout"
    return training.recipe(name, title, rate=rate, head=Heteroscedastic(draws), samples=samples)
