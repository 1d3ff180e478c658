"""The collector of post-hoc scores: it fits them to the features of the training split and keeps the weights."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError, listing
from dubio.core.specs import part
from dubio.core.types import Target
from dubio.inference.batches import EVALUATION_BATCH, collate, prediction_rows, to_device
from dubio.inference.engine import fixed
from dubio.inference.feature_scores import FeatureScore, TrainingFeatures, seeded_rows
from dubio.inference.samples import state_of
from dubio.inference.scored_weights import ScoredWeights, StoredScores, last_layer
from dubio.networks.network import Model
from dubio.training.collectors import Collected, Collector, Epoch, FinishContext

TRAINING_ELEMENTS = 1 << 26
"""Largest number of training features in memory, 256 MB in float32: 131,072 rows of 512. Of more rows, a seeded random
subset is used."""


@part("feature_scores")
@dataclass(frozen=True)
class FeatureScores(Collector):
    """The weights at the end, and scores of their features fitted to the training split, without augmentation.

    Attributes:
        scores: The scores, each once.
    """

    scores: tuple[FeatureScore, ...]

    stops_early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        names = [score.name for score in self.scores]
        if not names or len(set(names)) < len(names):
            raise UserError(f"scores: name at least one, each once; given {listing(names) or 'none'}.")

    def for_target(self, target: Target) -> FeatureScores:
        """Return the scores that are defined for a target.

        Raises:
            UserError: When none is.
        """
        if target != "multilabel":
            return self
        scores = tuple(score for score in self.scores if not score.needs_classes)
        if not scores:
            names = listing(score.name for score in self.scores)
            raise UserError(f"scores: {names} need one class per example; this task has several labels per example.")
        return replace(self, scores=scores)

    def check(self, model: Model, batches: Iterable[Any] = ()) -> None:
        """Refuse a model without one vector of features before a last layer, or too large ones."""
        if model.network.sets > 1:
            raise UserError(f"scores of features need one set of features per example; given {model.network.sets}.")
        layer = getattr(model.head, "linear", None)
        if isinstance(layer, nn.Identity):
            reason = model.head.missing or "this module has none"
            raise UserError("scores of features need a last layer that is a plain dense one with a bias, behind which "
                            f"the features end; {reason}.")  # fmt: skip
        for score in self.scores:
            if score.needs_last_layer and not (model.head.outputs_logits and isinstance(layer, nn.Linear)):
                kind = type(model.head).__name__
                raise UserError(f"score {score.name}: needs a softmax or sigmoid head, which is one dense layer; "
                                f"given a {kind}.")  # fmt: skip
            score.check(model.network.width, layer.out_features if isinstance(layer, nn.Linear) else 1)

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Remember the last epoch."""
        return Collected(facts={"epoch": epoch.number, "val_nll": epoch.val_nll})

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> ScoredWeights:
        """Return the weights with the statistics of every score."""
        started = time.monotonic()
        for score in self.scores:
            score.check_rows(len(context.train.encoded))
        train = training_features(model, context)
        statistics = {score.name: dict(score.fit(train)) for score in self.scores}
        collected.facts["record"] = {
            "scores": {
                "names": [score.name for score in self.scores],
                "rows": len(train.features),
                "width": train.features.shape[1],
                "elements": sum(tensor.numel() for own in statistics.values() for tensor in own.values()),
                "seconds": time.monotonic() - started,
            }
        }
        return ScoredWeights(model, state_of(model), self.scores, statistics)

    @property
    def form(self) -> StoredScores:
        """The weights and the statistics."""
        return StoredScores(self.scores)

    def passes(self, model: Model, examples: int) -> float:
        """Return one pass, in which the features are computed."""
        return 1


@torch.inference_mode()
def training_features(model: Model, context: FinishContext) -> TrainingFeatures:
    """Return the features of the training split as the network has them at prediction, in the order of its rows."""
    rows = seeded_rows(len(context.train.encoded), TRAINING_ELEMENTS // model.network.width, context.seed)
    encoded, labels = context.train.encoded, torch.from_numpy(context.train.labels[rows])
    if len(rows) < len(encoded):
        encoded = encoded.take(rows)
    ready = fixed(model.eval(), 0)
    features = torch.empty(len(rows), model.network.width)
    for batch_rows in prediction_rows(encoded, EVALUATION_BATCH):
        batch = to_device(collate(encoded, batch_rows), context.device)
        features[torch.from_numpy(batch_rows)] = ready.network(batch).cpu()
    if not torch.isfinite(features).all():
        raise UserError("scores of features: the network's features are not finite.")
    return TrainingFeatures(features, one_class(labels), last_layer(model.head), context.seed)


def one_class(labels: Tensor) -> Tensor:
    """Return class indices; of multi-hot labels −1, which belongs to no class."""
    return labels if labels.ndim == 1 else torch.full((len(labels),), -1)
