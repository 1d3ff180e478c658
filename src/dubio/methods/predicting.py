"""From a stored fit to predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dubio.core.predictions import Predictions
from dubio.core.specs import restore
from dubio.core.types import Split
from dubio.encoders import Encoded
from dubio.inference.batches import EVALUATION_BATCH, collate, prediction_rows, to_device
from dubio.inference.posterior import Drawn, Posterior, chunks_of
from dubio.methods.building import build_model
from dubio.methods.encoded import canonical, encoded, encoder_of
from dubio.methods.recipe import Recipe
from dubio.methods.stored_tensors import in_place
from dubio.training.seeds import number


def predict(
    spec: Mapping[str, Any],
    prediction: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    encoder: Mapping[str, Any],
    split: Split,
    *,
    device: str = "cpu",
) -> Predictions:
    """The predictions of one stored fit on a split.

    Args:
        spec: The fit's specification.
        prediction: The prediction's specification.
        tensors: The fit's stored tensors.
        encoder: The fit's stored encoder.
        split: What to predict.
        device: Where.
    """
    return predictor(spec, prediction, tensors, encoder, device=device)(split)


def predictor(
    spec: Mapping[str, Any],
    prediction: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    encoder: Mapping[str, Any],
    *,
    device: str = "cpu",
) -> Callable[[Split], Predictions]:
    """What predicts any split from one stored fit; everything that no split changes is computed here, once.

    Args:
        spec: The fit's specification.
        prediction: The prediction's specification.
        tensors: The fit's stored tensors.
        encoder: The fit's stored encoder.
        device: Where.
    """
    text = canonical(encoder)
    model = build_model(spec, encoder_of(text).shape).to(torch.device(device))
    named = {name: in_place(array) for name, array in tensors.items()}
    collect = cast(Recipe, restore(spec["recipe"])).collect
    posterior = collect.restore(named, model, prediction["samples"], restore(prediction["views"]))
    if "latest" in prediction:
        posterior = posterior.limit(prediction["latest"])
    drawn = posterior.draw(number(prediction["seed"], prediction["member"], "prediction"))
    return lambda split: _predictions(drawn, encoded(text, split), split, spec["task"], device)


def predict_with(
    posterior: Posterior, examples: Encoded, split: Split, task: Mapping[str, Any], *, seed: int, device: str = "cpu"
) -> Predictions:
    """The predictions of a posterior on an encoded split.

    Args:
        posterior: What a fit left.
        examples: The split's examples, encoded by the fit's encoder.
        split: The split.
        task: The task's ``target`` and ``classes``.
        seed: Fixes every draw.
        device: Where.
    """
    return _predictions(posterior.draw(seed), examples, split, task, device)


def _predictions(drawn: Drawn, examples: Encoded, split: Split, task: Mapping[str, Any], device: str) -> Predictions:
    """What a drawn posterior says of an encoded split."""
    logits, variances = sampled(drawn, examples, len(task["classes"]), device)
    return Predictions(
        logits,
        split.data.labels,
        target=task["target"],
        ood=np.full(len(split), split.kind in ("shift", "ood")),
        member=np.array(drawn.member, dtype=np.int64),
        data_variance=variances.get("data_variance"),
        model_variance=variances.get("model_variance"),
        ids=split.data.ids,
        group=split.data.group,
        classes=tuple(task["classes"]),
        kind=split.kind,
    )


def sampled(
    drawn: Drawn, examples: Encoded, classes: int, device: str
) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
    """Logits ``[S, N, K]`` of every sample, and the variances that there are, by name.

    Args:
        drawn: A posterior made ready to predict.
        examples: The encoded examples.
        classes: K.
        device: Where.
    """
    shape = (len(drawn.member), len(examples), classes)
    logits = np.empty(shape, dtype=np.float32)
    variances: dict[str, NDArray[np.float32]] = {}
    first = 0
    for part in chunks_of(drawn):
        mine = slice(first, first := first + len(part.member))
        for rows in prediction_rows(examples, EVALUATION_BATCH):
            found = part.predict(to_device(collate(examples, rows), torch.device(device)), rows)
            logits[mine, rows] = found.logits.cpu().numpy()
            for name in ("data_variance", "model_variance"):
                if (variance := getattr(found, name)) is not None:
                    whole = variances.setdefault(name, np.empty((*shape[:2], *variance.shape[2:]), dtype=np.float32))
                    whole[mine, rows] = variance.cpu().numpy()
        del part  # or the next one is made beside it
    return logits, variances
