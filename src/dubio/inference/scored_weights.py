"""A weight state with post-hoc scores: the posterior of a network whose features were looked at after training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.inference.augmentation import Views
from dubio.inference.engine import State
from dubio.inference.feature_scores import FeatureScore, LastLayer, Statistics
from dubio.inference.posterior import check_same_shapes
from dubio.inference.predictor import ChunkedPredictor, PredictionNoise, StatePredictor, predict_states
from dubio.inference.samples import StoredSamples
from dubio.inference.weight_draws import with_prefix
from dubio.networks.network import HeadModule, Model, Scores

SCORE = "score/"
"""Prefix of the statistics of scores among the stored tensors."""


class ScoredHead(HeadModule):
    """A head that also gives post-hoc scores of the features that enter it; its logits stay as they are."""

    def __init__(self, head: HeadModule, scores: Mapping[str, tuple[FeatureScore, Statistics]]) -> None:
        """Wrap a head with its trained weights.

        Args:
            head: The head.
            scores: Each score with its statistics, by name.
        """
        super().__init__()
        self.head, self.link, self.normals = head, head.link, head.normals
        self._scores, self._last = scores, last_layer(head)

    def forward(self, features: Tensor) -> Tensor:
        """Return the head's output and, in further columns, the scores."""
        self.head.given = self.given
        output = self.head(features)
        rows = features.detach().double().cpu()
        columns = [score.score(statistics, rows, self._last) for score, statistics in self._scores.values()]
        return torch.cat([output, torch.stack(columns, dim=1).to(output)], dim=1)

    def scores(self, output: Tensor) -> Scores:
        """Return the head's scores with the post-hoc ones beside them."""
        count = len(self._scores)
        self.head.given = self.given
        plain = self.head.scores(output[:, :-count])
        return plain._replace(own=dict(zip(self._scores, output[:, -count:].unbind(1), strict=True)))


def last_layer(head: HeadModule) -> LastLayer:
    """Return the weights of a linear last layer in float64; empty ones of a head of another kind."""
    layer = getattr(head, "linear", None)
    if not isinstance(layer, nn.Linear):
        none = torch.empty(0, dtype=torch.float64)
        return LastLayer(none, none, head.link)
    weight = layer.weight.detach().double().cpu()
    bias = torch.zeros(len(weight), dtype=torch.float64) if layer.bias is None else layer.bias.detach().double().cpu()
    return LastLayer(weight, bias, head.link)


@dataclass(frozen=True, eq=False)
class ScoredWeights:
    """One weight state and the statistics of its scores.

    Attributes:
        model: The module that the weights belong to.
        state: The weights.
        scores: The scores.
        statistics: Of each score, by its name.
        views: Random views of each example, or None; scores, like probabilities, are averaged over views.
    """

    model: Model
    state: State
    scores: tuple[FeatureScore, ...]
    statistics: Mapping[str, Statistics]
    views: Views | None = None

    def draw(self, seed: int) -> StatePredictor | ChunkedPredictor:
        """Put the model in evaluation mode, with views from this seed."""
        return predict_states(self.model, [lambda: self.state], seed, PredictionNoise(0, self.views), self._scored)

    def _scored(self, model: Model) -> Model:
        scores = {score.name: (score, self.statistics[score.name]) for score in self.scores}
        return Model(model.network, ScoredHead(model.head, scores)).eval()

    @property
    def states(self) -> tuple[State, ...]:
        """The weight state."""
        return (self.state,)

    def __len__(self) -> int:
        return 1

    def weight_states(self) -> Iterator[State]:
        """Return the weight state."""
        return iter(self.states)

    def check_shapes(self, state: State) -> None:
        """Compare the weights with the model's, and try the scores on a row of zeros."""
        check_same_shapes(self.state, state, "weight state 0")
        row = torch.zeros(1, self.model.network.width, dtype=torch.float64)
        last = last_layer(self.model.head)
        for score in self.scores:
            shape = list(score.score(self.statistics[score.name], row, last).shape)
            if shape != [1]:
                raise UserError(f"score {score.name}: of one row it has shape {shape}; it must be [1].")

    def limit(self, most: int) -> ScoredWeights:
        """Return the same with at most ``most`` views."""
        views = self.views
        return self if views is None else replace(self, views=replace(views, each=min(views.each, most)))

    def tensors(self) -> dict[str, Tensor]:
        """Return ``0/<name>`` → weight, as of any weight state, and ``score/<score>/<name>`` → statistic."""
        named = {f"0/{name}": tensor for name, tensor in self.state.items()}
        for score, statistics in self.statistics.items():
            named |= {f"{SCORE}{score}/{name}": tensor for name, tensor in statistics.items()}
        return named


@dataclass(frozen=True)
class StoredScores:
    """The stored form of :class:`ScoredWeights`."""

    scores: tuple[FeatureScore, ...]

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> ScoredWeights:
        """Return the posterior of stored tensors."""
        if samples:
            raise UserError(
                f"scores of features are those of a deterministic pass: samples must be 0; given {samples}."
            )
        weights = {name: tensor for name, tensor in tensors.items() if not name.startswith(SCORE)}
        (state,) = StoredSamples().restore(weights, model, 0, None).states
        statistics = {score.name: with_prefix(f"{SCORE}{score.name}/", tensors) for score in self.scores}
        return ScoredWeights(model, state, self.scores, statistics, views)
