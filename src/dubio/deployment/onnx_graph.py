"""A model as one ONNX graph: all fits, their pooling and the temperature, for runtimes without Python's networks.

Only networks that predict in single passes can be written: deterministic fits, their ensembles, averaged weights,
snapshots, weights that are drawn once for all rows. What is drawn for each row, or fitted by scikit-learn, is refused
by name. The graph takes raw numbers ``[B, D]`` (NaN where missing) or raw images, uint8 ``[B, H, W, C]``, and
standardises them; texts enter as ``tokens [B, L]``, padded with 0 to at least 16, and ``lengths [B]``, as the model's
encoder gives them. Its output ``probabilities [B, K]`` is that of
:meth:`~dubio.deployment.model.Model.predict_proba`: after the export both are computed for the same rows by onnxruntime
and torch, and a graph that differs by more than 1e-5 is not written.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dubio.calibration.recalibration import TemperatureScaling
from dubio.core.errors import MissingExtra, UserError
from dubio.core.specs import canonical
from dubio.core.types import Examples
from dubio.deployment.model import TOLERANCE, Model, ModelFit
from dubio.encoders import TokenRows
from dubio.methods.encoding_cache import encoder_of
from dubio.methods.prediction import as_tensors
from dubio.methods.specification import build_model, estimator_of, recipe_of
from dubio.networks.network import Model as NetworkModel
from dubio.networks.network import Stage, TokenBatch

LEAST_TOKENS = 16
"""Positions of a text in the graph, at least: no window of a network is wider."""

MOST_STATES = 64
"""Largest number of weight states in one graph."""

WRITABLE = (
    "A graph holds networks with fixed weights: a single one, ensembles, averaged weights, snapshots of a training, "
    "weights that are drawn once."
)


class Graph(nn.Module):
    """Networks of one model, pooled: p̄ = softmax(log(1/M Σ softmax(z_m)) / T), or the same by labels."""

    factor: Tensor
    offset: Tensor

    def __init__(self, networks: list[NetworkModel], encoder: Any, inputs: str, temperature: float) -> None:
        """Join networks of the same inputs."""
        super().__init__()
        self.networks, self.inputs, self.temperature = nn.ModuleList(networks), inputs, temperature
        if inputs != "text":
            shape = (-1, 1, 1) if inputs == "image" else (-1,)
            mean, deviation = (
                torch.tensor(values, dtype=torch.float64) for values in (encoder.mean, encoder.deviation)
            )
            self.register_buffer("factor", (1.0 / deviation).reshape(shape).float())
            self.register_buffer("offset", (mean / deviation).reshape(shape).float())

    def forward(self, values: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the probabilities of a batch."""
        batch: Any = self._tokens(values, lengths) if lengths is not None else self._standardised(values)
        logs = []
        for model in self.networks:
            assert isinstance(model, NetworkModel)
            logits = model.head.scores(model.head(model.rows(model.network(batch)))).logits
            logits = logits.reshape(-1, model.network.sets, logits.shape[-1])
            logs.append(logits)
        every = torch.cat(logs, dim=1)
        if self.networks[0].head.link == "sigmoid":  # type: ignore[union-attr]
            pooled = torch.sigmoid(every).mean(dim=1)
            return torch.sigmoid(torch.log(pooled / (1.0 - pooled)) / self.temperature)
        pooled = torch.log(torch.softmax(every, dim=-1).mean(dim=1))
        return torch.softmax(pooled / self.temperature, dim=-1)

    def _standardised(self, values: Tensor) -> Tensor:
        if self.inputs == "image":
            return values.permute(0, 3, 1, 2).float() * self.factor - self.offset
        standard = values * self.factor - self.offset
        return torch.where(torch.isnan(standard), torch.zeros_like(standard), standard)

    def _tokens(self, tokens: Tensor, lengths: Tensor) -> TokenBatch:
        """Return a batch in which every position has a row of its own, after that of PAD."""
        distinct = torch.cat([torch.zeros_like(tokens.reshape(-1)[:1]), tokens.reshape(-1)])
        positions = torch.arange(1, tokens.numel() + 1, device=tokens.device).reshape(tokens.shape)
        return TokenBatch(distinct, torch.where(tokens > 0, positions, torch.zeros_like(positions)), lengths)


def write_onnx(model: Model, path: Path, examples: Examples) -> None:
    """Write a model as an ONNX graph, and compare it with torch.

    Args:
        model: The model.
        path: The file.
        examples: Rows on which both are compared; at least two.

    Raises:
        MissingExtra: Without the packages of ``dubio[onnx]``.
        UserError: For a method that does not predict in single passes, or a graph that differs.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ModuleNotFoundError as missing:
            raise MissingExtra("writing an ONNX graph", "onnx") from missing
    graph, arrays, expected = _graph(model).eval(), _inputs(model, examples), model.of_examples(examples).probs
    try:
        _export(graph, arrays, path)
        difference = max(_difference(path, model, examples, expected, rows) for rows in (slice(None), slice(0, 1)))
    except Exception as fault:  # the exporter raises whatever an operation without a counterpart leads to
        path.unlink(missing_ok=True)
        reason = f"{type(fault).__name__}: {str(fault).strip().splitlines()[0]:.200}"
        raise UserError(f"--onnx: the network {model.names.network} cannot be written as a graph: {reason}") from fault
    if not difference <= TOLERANCE:
        path.unlink()
        raise UserError(
            f"--onnx: the graph's probabilities differ from torch's by {difference:.2g}, over {TOLERANCE:g}."
        )


def _export(graph: Graph, arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Write a graph for batches of any size, and texts of any length; the exporter's remarks are left out."""
    axes = tuple({0: "rows", 1: "words"} if name == "tokens" else {0: "rows"} for name in arrays)
    tensors = tuple(map(torch.from_numpy, arrays.values()))
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph, tensors, str(path), input_names=list(arrays), output_names=["probabilities"], dynamic_shapes=axes,
            dynamo=True, external_data=False,
        )  # fmt: skip


def _difference(path: Path, model: Model, examples: Examples, expected: NDArray[Any], rows: slice) -> float:
    """Return the largest difference of the graph's probabilities from torch's on some rows."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    chosen = np.arange(len(examples))[rows]
    (probabilities,) = session.run(None, _inputs(model, examples.take(chosen)))
    return float(np.abs(probabilities - expected[chosen]).max())


def _inputs(model: Model, examples: Examples) -> dict[str, NDArray[Any]]:
    """Return the inputs of the graph for some rows."""
    if isinstance(examples.inputs, tuple):
        rows = model.encoder.encode(examples)
        assert isinstance(rows, TokenRows)
        tokens = np.zeros((len(rows), max(LEAST_TOKENS, int(rows.lengths.max()))), dtype=np.int64)
        for index, length in enumerate(rows.lengths):
            tokens[index, :length] = rows.tokens[rows.offsets[index] : rows.offsets[index + 1]]
        return {"tokens": tokens, "lengths": rows.lengths.astype(np.int64)}
    values = np.asarray(examples.inputs[:])
    return {"images": values} if model.inputs == "image" else {"numbers": values.astype(np.float32)}


def _graph(model: Model) -> Graph:
    """Return the networks of a model, pooled."""
    temperature, recalibration = 1.0, model.recalibration
    if recalibration is not None:
        if not isinstance(recalibration.parameters, TemperatureScaling):
            raise UserError(f"--onnx: a graph holds a temperature, not a {recalibration.method} map.")
        temperature = recalibration.parameters.temperature
    networks = [network for fit in model.fits for network in _networks(model, fit)]
    return Graph(networks, model.encoder, model.inputs, temperature)


def _networks(model: Model, fit: ModelFit) -> list[NetworkModel]:
    """Return one network per weight state of a fit."""
    name = model.names.method
    if estimator_of(fit.spec) is not None:
        raise UserError(f"--onnx: {name} is not a network. {WRITABLE}")
    if fit.prediction["samples"] or fit.prediction["views"] is not None:
        raise UserError(f"--onnx: {name} draws noise or views for each row. {WRITABLE}")
    network = build_model(fit.spec, encoder_of_fit(fit).shape)
    if network.head.normals:
        raise UserError(f"--onnx: {name} draws noise for each row in its head. {WRITABLE}")
    posterior = recipe_of(fit.spec).collect.form.restore(as_tensors(fit.tensors), network, 0, None)
    if "latest" in fit.prediction:
        posterior = posterior.limit(fit.prediction["latest"])
    if (states := len(posterior) * len(model.fits)) > MOST_STATES:
        raise UserError(f"--onnx: {name} has {states} weight states; a graph holds {MOST_STATES} at most.")
    networks = []
    for state in posterior.weight_states():
        own = copy.deepcopy(network)
        own.load_state_dict({key: tensor.clone() for key, tensor in state.items()})
        own.network.stages = nn.ModuleList(stage.traceable() if isinstance(stage, Stage) else stage
                                           for stage in own.network.stages)  # fmt: skip
        networks.append(own.eval())
    return networks


def encoder_of_fit(fit: ModelFit) -> Any:
    """Return the encoder of a fit."""
    return encoder_of(canonical(fit.encoder))
