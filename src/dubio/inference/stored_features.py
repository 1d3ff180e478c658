"""Features of a chosen layer, to be stored with predictions: float16, of a deterministic pass, bounded in size."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import UserError
from dubio.encoders import Encoded
from dubio.inference.batches import EVALUATION_BATCH, collate, prediction_rows, to_device
from dubio.inference.posterior import Restored
from dubio.inference.predictor import load_state
from dubio.networks.network import Model

LAST = "last"
"""The layer whose outputs enter the head."""

FEATURE_BYTES = 1 << 30
"""Largest size of the features of one split, 1 GiB: 60,000 examples of 8,947 features."""


@torch.inference_mode()
def stored_features(posterior: Restored, layer: str, examples: Encoded, device: str) -> NDArray[np.float16]:
    """Return the features ``[states, N, D]`` of examples at a layer, one set for each weight state, without noise.

    Args:
        posterior: The posterior of a fit.
        layer: ``last`` for the inputs of the head, or the number of a stage, from 0.
        examples: The encoded examples.
        device: The device to compute on.

    Raises:
        UserError: For a layer without such features, too many of them, or values beyond the range of float16.
    """
    model = deepcopy(posterior.model).eval()  # the posterior's own keeps the weights it predicts with
    features: NDArray[np.float16] = np.empty((0, 0, 0), dtype=np.float16)
    for index, state in enumerate(posterior.weight_states()):
        load_state(model, state)
        for rows in prediction_rows(examples, EVALUATION_BATCH):
            batch = to_device(collate(examples, rows), torch.device(device))
            with np.errstate(over="ignore"):  # refused below, with a sentence of its own
                values = _at_layer(model, layer, batch).cpu().numpy().astype(np.float16)
            if not features.size:
                features = _allocated(layer, (len(posterior), len(examples), values.shape[1]))
            features[index, rows] = values
    if not np.isfinite(features).all():
        raise UserError(f"store_features: layer {layer} has values that float16 cannot hold, which ends at 65,504.")
    return features


def _at_layer(model: Model, layer: str, batch: Any) -> Tensor:
    """Return the outputs ``[B, D]`` of a layer; the positions of a map ``[B, D, …]`` are averaged."""
    stages = list(model.network.stages)
    if layer != LAST and int(layer) >= len(stages):
        listed = ", ".join(f"{k} ({type(stage).__name__})" for k, stage in enumerate(stages))
        raise UserError(f"store_features: this network has the layers {listed} and '{LAST}'; given {layer}.")
    value = batch
    for stage in stages if layer == LAST else stages[: int(layer) + 1]:
        value = stage(value)
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise UserError(f"store_features: layer {layer} passes on a {kind}, which is no array; '{LAST}' does.")
    if layer == LAST:
        return value.flatten(1)  # sets of features side by side
    return value.flatten(2).mean(2) if value.ndim > 2 else value


def _allocated(layer: str, shape: tuple[int, int, int]) -> NDArray[np.float16]:
    size = 2 * shape[0] * shape[1] * shape[2]
    if size > FEATURE_BYTES:
        states, rows, width = shape
        raise UserError(
            f"store_features: layer {layer} has {width:,} features; of {rows:,} examples and {states} weight states "
            f"they take {size:,} bytes, and at most {FEATURE_BYTES:,} are stored for a split."
        )
    return np.empty(shape, dtype=np.float16)
