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
from dubio.core.types import Split
from dubio.encoders import Encoded
from dubio.inference.batches import EVALUATION_BATCH, collate, prediction_rows, to_device
from dubio.inference.posterior import Drawn, Posterior, chunks_of
from dubio.methods.encoding_cache import encode, encoder_of
from dubio.methods.estimator import Estimator, Stored, estimator_logits
from dubio.methods.specification import build_model, estimator_of, recipe_of
from dubio.training.seeds import number


def predictor(
    spec: Mapping[str, Any],
    prediction: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    encoder: Mapping[str, Any],
    *,
    device: str = "cpu",
) -> Callable[[Split], Predictions]:
    """Return a function that predicts any split from one stored fit; what no split changes is computed here, once.

    Args:
        spec: The fit's specification.
        prediction: The prediction's specification.
        tensors: The fit's stored tensors.
        encoder: The fit's stored encoder.
        device: The device to predict on.
    """
    text, task = canonical(encoder), spec["task"]
    if (estimator := estimator_of(spec)) is not None:
        return lambda split: _estimated(estimator, tensors, encode(text, split), split, task)
    model = build_model(spec, encoder_of(text).shape).to(torch.device(device))
    collect = recipe_of(spec).collect
    posterior = collect.form.restore(as_tensors(tensors), model, prediction["samples"], restore(prediction["views"]))
    if "latest" in prediction:
        posterior = posterior.limit(prediction["latest"])
    draws = posterior.draw(number(prediction["seed"], prediction["member"], "prediction"))
    return lambda split: _predictions(draws, encode(text, split), split, task, device)


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


def _estimated(
    estimator: Estimator, arrays: Stored, examples: Encoded, split: Split, task: Mapping[str, Any]
) -> Predictions:
    """Return the predictions of an estimator on an encoded split."""
    logits = estimator_logits(estimator, arrays, examples, task["target"])
    return _of_split(split, task, {"logits": logits[None].astype(np.float32)})


def _of_split(
    split: Split, task: Mapping[str, Any], scores: Mapping[str, NDArray[np.float32]], member: Sequence[int] = (0,)
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
    )


def sample_scores(draws: Drawn, examples: Encoded, classes: int, device: str) -> dict[str, NDArray[np.float32]]:
    """Return ``logits [S, N, K]`` of every sample, and the variances that the head gives, by name.

    Args:
        draws: A posterior that is ready to predict.
        examples: The encoded examples.
        classes: K.
        device: The device to predict on.
    """
    shape = (len(draws.member), len(examples), classes)
    arrays = {"logits": np.empty(shape, dtype=np.float32)}
    first = 0
    for chunk in chunks_of(draws):
        samples = slice(first, first := first + len(chunk.member))
        for rows in prediction_rows(examples, EVALUATION_BATCH):
            scores = chunk.predict(to_device(collate(examples, rows), torch.device(device)), rows)
            for name, values in scores._asdict().items():
                if values is not None:
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
