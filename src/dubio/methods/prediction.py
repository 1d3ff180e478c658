"""Predict from a stored fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.predictions import Predictions
from dubio.core.specs import canonical, restore
from dubio.core.types import FloatArray, Split, Target
from dubio.encoders import Encoded
from dubio.inference.batches import EVALUATION_BATCH, collate, prediction_rows, to_device
from dubio.inference.posterior import Drawn, Posterior, chunks_of
from dubio.inference.stored_features import stored_features
from dubio.methods.encoding_cache import encode, encoder_of
from dubio.methods.estimator import estimator_logits
from dubio.methods.specification import build_model, estimator_of, recipe_of
from dubio.networks.draws import Keys
from dubio.training.seeds import number

OWN = "own."
"""Prefix of a method's own uncertainties among the scores of its samples."""


class FitPredictor:
    """A stored fit, ready to predict: what no rows change is computed once.

    Attributes:
        encoder: The canonical JSON of its encoder.
        member: The member of each sample, from 0.
        target: The kind of prediction.
        classes: Names of the classes.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        prediction: Mapping[str, Any],
        tensors: Mapping[str, NDArray[Any]],
        encoder: Mapping[str, Any],
        *,
        device: str = "cpu",
    ) -> None:
        """Restore a fit.

        Args:
            spec: The fit's specification.
            prediction: The prediction's specification.
            tensors: The fit's stored tensors.
            encoder: The fit's stored encoder.
            device: The device to predict on.
        """
        self.encoder, self._tensors, self._device = canonical(encoder), tensors, device
        self.target: Target = spec["task"]["target"]
        self.classes = tuple(spec["task"]["classes"])
        self._estimator = estimator_of(spec)
        if self._estimator is not None:
            self.member: tuple[int, ...] = (0,)
            return
        model = build_model(spec, encoder_of(self.encoder).shape).to(torch.device(device))
        collect = recipe_of(spec).collect
        views = restore(prediction["views"])
        posterior = collect.form.restore(as_tensors(tensors), model, prediction["samples"], views)
        if "latest" in prediction:
            posterior = posterior.limit(prediction["latest"])
        self._posterior, self._layer = posterior, prediction.get("features", "")
        self._draws = posterior.draw(number(prediction["seed"], prediction["member"], "prediction"))
        self.member = self._draws.member

    def scores(self, examples: Encoded, keys: Keys | None = None) -> dict[str, NDArray[Any]]:
        """Return scores by name about encoded examples, as :func:`sample_scores` does, and ``features`` if asked for.

        Args:
            examples: Encoded by the fit's encoder.
            keys: Hashes of the examples, from which their noise is drawn; from their indices where None.
        """
        if self._estimator is not None:
            logits = estimator_logits(self._estimator, self._tensors, examples, self.target)
            return {"logits": logits[None].astype(np.float32)}
        scores = sample_scores(self._draws, examples, len(self.classes), self._device, keys)
        if not self._layer:
            return scores
        return {**scores, "features": stored_features(self._posterior, self._layer, examples, self._device)}


def predictor(
    spec: Mapping[str, Any],
    prediction: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    encoder: Mapping[str, Any],
    *,
    device: str = "cpu",
) -> Callable[[Split], Predictions]:
    """Return a function that predicts any split from one stored fit; arguments as of :class:`FitPredictor`."""
    fit = FitPredictor(spec, prediction, tensors, encoder, device=device)
    return lambda split: _of_split(split, spec["task"], fit.scores(encode(fit.encoder, split)), fit.member)


def predict_with(
    posterior: Posterior, examples: Encoded, split: Split, task: Mapping[str, Any], *, seed: int, device: str = "cpu"
) -> Predictions:
    """Return the predictions of a posterior on an encoded split.

    Args:
        posterior: The posterior of a fit.
        examples: The split's examples, encoded by the fit's encoder.
        split: The split.
        task: The task's ``target`` and ``classes``.
        seed: Determines every draw.
        device: The device to predict on.
    """
    return _predictions(posterior.draw(seed), examples, split, task, device)


def _predictions(draws: Drawn, examples: Encoded, split: Split, task: Mapping[str, Any], device: str) -> Predictions:
    """Return the predictions of a drawn posterior on an encoded split."""
    return _of_split(split, task, sample_scores(draws, examples, len(task["classes"]), device), draws.member)


def _of_split(
    split: Split, task: Mapping[str, Any], scores: Mapping[str, NDArray[Any]], member: Sequence[int] = (0,)
) -> Predictions:
    """Return scores by name, ``logits [S, N, K]`` and perhaps variances, as predictions about the rows of a split."""
    return Predictions(
        scores["logits"],
        split.data.labels,
        target=task["target"],
        ood=np.full(len(split), split.kind in ("shift", "ood")),
        member=np.array(member, dtype=np.int64),
        data_variance=scores.get("data_variance"),
        model_variance=scores.get("model_variance"),
        ids=split.data.ids,
        group=split.data.group,
        classes=tuple(task["classes"]),
        kind=split.kind,
        scores=own_scores(scores),
        features=scores.get("features"),
    )


def own_scores(arrays: Mapping[str, NDArray[Any]]) -> dict[str, FloatArray]:
    """Return a method's own uncertainties ``[N]`` by name: the mean over samples, hence over members and views."""
    named = {name.removeprefix(OWN): values for name, values in arrays.items() if name.startswith(OWN)}
    return {name: values.mean(axis=0, dtype=np.float64) for name, values in named.items()}


def sample_scores(
    draws: Drawn, examples: Encoded, classes: int, device: str, keys: Keys | None = None
) -> dict[str, NDArray[Any]]:
    """Return ``logits [S, N, K]`` of every sample, the variances and, behind ``own.``, the uncertainties of the head.

    Args:
        draws: A posterior that is ready to predict.
        examples: The encoded examples.
        classes: K.
        device: The device to predict on.
        keys: Hashes of the examples, from which their noise is drawn; from their indices where None.
    """
    shape = (len(draws.member), len(examples), classes)
    arrays = {"logits": np.empty(shape, dtype=np.float32)}
    first = 0
    for chunk in chunks_of(draws):
        samples = slice(first, first := first + len(chunk.member))
        for rows in prediction_rows(examples, EVALUATION_BATCH):
            names = rows if keys is None else keys[rows]
            scores = chunk.predict(to_device(collate(examples, rows), torch.device(device)), names)
            named = {**scores._asdict(), **{OWN + name: values for name, values in scores.own.items()}}
            for name, values in named.items():
                if isinstance(values, Tensor):
                    if name not in arrays:
                        arrays[name] = np.empty((*shape[:2], *values.shape[2:]), dtype=np.float32)
                    arrays[name][samples, rows] = values.cpu().numpy()
        del chunk  # or the next one is built beside it
    return arrays


def as_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return stored arrays as tensors without copying: a file's memory is read when needed and never written."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
