"""Predict from a stored fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
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
from dubio.methods.specification import build_model, recipe_of
from dubio.training.seeds import number

VARIANCES = ("data_variance", "model_variance")


def predict(
    spec: Mapping[str, Any],
    prediction: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    encoder: Mapping[str, Any],
    split: Split,
    *,
    device: str = "cpu",
) -> Predictions:
    """Return the predictions of one stored fit on a split; see :func:`predictor`."""
    return predictor(spec, prediction, tensors, encoder, device=device)(split)


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
    text = canonical(encoder)
    model = build_model(spec, encoder_of(text).shape).to(torch.device(device))
    collect = recipe_of(spec).collect
    posterior = collect.form.restore(as_tensors(tensors), model, prediction["samples"], restore(prediction["views"]))
    if "latest" in prediction:
        posterior = posterior.limit(prediction["latest"])
    draws = posterior.draw(number(prediction["seed"], prediction["member"], "prediction"))
    return lambda split: _predictions(draws, encode(text, split), split, spec["task"], device)


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
    logits, variances = sample_logits(draws, examples, len(task["classes"]), device)
    return Predictions(
        logits,
        split.data.labels,
        target=task["target"],
        ood=np.full(len(split), split.kind in ("shift", "ood")),
        member=np.array(draws.member, dtype=np.int64),
        data_variance=variances.get("data_variance"),
        model_variance=variances.get("model_variance"),
        ids=split.data.ids,
        group=split.data.group,
        classes=tuple(task["classes"]),
        kind=split.kind,
    )


def sample_logits(
    draws: Drawn, examples: Encoded, classes: int, device: str
) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
    """Return the logits ``[S, N, K]`` of every sample, and the variances by name.

    Args:
        draws: A posterior that is ready to predict.
        examples: The encoded examples.
        classes: K.
        device: The device to predict on.
    """
    shape = (len(draws.member), len(examples), classes)
    logits = np.empty(shape, dtype=np.float32)
    variances: dict[str, NDArray[np.float32]] = {}
    first = 0
    for chunk in chunks_of(draws):
        samples = slice(first, first := first + len(chunk.member))
        for rows in prediction_rows(examples, EVALUATION_BATCH):
            scores = chunk.predict(to_device(collate(examples, rows), torch.device(device)), rows)
            logits[samples, rows] = scores.logits.cpu().numpy()
            for name in VARIANCES:
                if (variance := getattr(scores, name)) is None:
                    continue
                if name not in variances:
                    variances[name] = np.empty((*shape[:2], *variance.shape[2:]), dtype=np.float32)
                variances[name][samples, rows] = variance.cpu().numpy()
        del chunk  # or the next one is built beside it
    return logits, variances


def as_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return stored arrays as tensors without copying: a file's memory is read when needed and never written."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
