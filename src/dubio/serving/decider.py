"""Decide about rows with a model and a policy, by the rule of ``dubio refer apply``: each row as if it were alone."""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Logits, Predictions
from dubio.core.specs import canonical
from dubio.core.types import UNLABELLED, Target
from dubio.formats.values import SLACK, TOLERANCE, as_logits
from dubio.metrics.quantities import CONFIDENCE, confidence, uncertainty
from dubio.referral.application import DECISIONS, RowDecision, class_names, decide_each
from dubio.referral.policy import Policy
from dubio.referral.shift import check_same_system
from dubio.referral.units import rounded_uncertainty
from dubio.serving.messages import Column, Probabilities, RowRequest

POOLED = (CONFIDENCE, "predictive_entropy")
"""Uncertainties of the pooled prediction: probabilities of any number of samples have them."""

REFER_ALL = "every row is referred: the server was started with --refer-all"


class Classifier(Protocol):
    """The model of a server."""

    @property
    def identity(self) -> str:
        """The SHA-256 of what determines its predictions."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""

    @property
    def inputs(self) -> str:
        """The kind of its rows: text, table or image."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that a row must have."""

    @property
    def target(self) -> Target:
        """The kind of prediction."""

    @property
    def policy(self) -> Policy | None:
        """The policy that it was exported with."""

    def predictions(self, rows: Sequence[Mapping[str, Any]], references: Sequence[str] = ()) -> Predictions:
        """Predict rows, each of them as if it were alone; a refusal calls them by these names."""


@dataclass(frozen=True, eq=False)
class Item:
    """A row of a request, checked as far as it can be without the model.

    Attributes:
        id: Its name.
        content: SHA-256 of what the client sent.
        row: The values as the client sent them.
        cells: The values as the model takes them, or None where the probabilities are given.
        logits: ``[S, K]`` of the given probabilities, or None.
    """

    id: str
    content: str
    row: Mapping[str, Any] | None
    cells: Mapping[str, Any] | None = None
    logits: Logits | None = None


@dataclass(frozen=True)
class Decider:
    """A model, or none where others predict, with a policy, or none where every row is referred.

    Attributes:
        model: The model.
        policy: The policy.
        force: Whether the policy may have been fitted for another model.
        classes: Names of the classes.
    """

    model: Classifier | None
    policy: Policy | None
    force: bool = False
    classes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        classes = self.model.classes if self.model is not None else self.policy.classes if self.policy else None
        if not classes:
            raise UserError("a server without a model needs a policy that names its classes (--policy).")
        object.__setattr__(self, "classes", tuple(classes))
        if self.policy is not None:
            logits = np.zeros((self.policy.samples, 1, len(classes)), dtype=np.float32)
            system = None if self.model is None else self.model.identity
            example = self._as_predictions(logits).with_checked(system=system)
            check_same_system(self.policy, example, allow_other=self.force)

    @property
    def target(self) -> Target:
        """The kind of prediction."""
        return self.model.target if self.model is not None else self.policy.target if self.policy else "multiclass"

    @property
    def rule(self) -> str:
        """Which rows are retained, in words."""
        return REFER_ALL if self.policy is None else self.policy.rule

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of rows; none where a row is only shown."""
        if self.model is None:
            return ()
        kinds = {"text": "text", "image": "image"}
        return tuple(Column(name, kinds.get(self.model.inputs, "any")) for name in self.model.columns)  # type: ignore[arg-type]

    # --- requests ---------------------------------------------------------------------------------------------------

    def item(self, request: RowRequest, number: int) -> Item:
        """Check a row of a request.

        Args:
            request: The row.
            number: Its number in the request, for messages.

        Raises:
            UserError: Naming the row, and what is wrong with it.
        """
        location = f"rows[{number}]"
        name = request.id or uuid.uuid4().hex
        sent = {"row": request.row, "probabilities": request.probabilities}
        content = hashlib.sha256(canonical(sent)).hexdigest()
        if request.probabilities is not None:
            return Item(name, content, request.row, logits=self._logits(request.probabilities, location))
        if self.model is None:
            raise UserError(f"{location} needs 'probabilities': this server has no model.")
        assert request.row is not None
        return Item(name, content, request.row, cells=self._cells(request.row, location))

    def _cells(self, row: Mapping[str, Any], location: str) -> dict[str, Any]:
        """Return the values as the model takes them: images as bytes."""
        cells = dict(row)
        names = [column.name for column in self.columns]
        for name in row:
            if name not in names:
                raise UnknownName(f"column of {location}", name, names)
        for column in self.columns:
            if column.name not in row:
                raise UserError(f"{location} needs the column {column.name!r}.")
            value = cells[column.name]
            if column.kind == "text" and value is None:
                continue
            if column.kind in ("text", "image") and not isinstance(value, str):
                kind = "a text" if column.kind == "text" else "the base64 of a PNG or JPEG"
                raise UserError(f"{location}: column {column.name!r} must be {kind}; given {str(value)[:60]}.")
            if column.kind == "image":
                try:
                    cells[column.name] = base64.b64decode(value, validate=True)
                except (binascii.Error, ValueError) as fault:
                    raise UserError(f"{location}: column {column.name!r} is not base64: {fault}.") from fault
        return cells

    def _logits(self, probabilities: Probabilities | Sequence[Probabilities], location: str) -> Logits:
        """Return ``[S, K]`` logits of probabilities by class."""
        samples = [probabilities] if isinstance(probabilities, Mapping) else list(probabilities)
        if self.policy is not None and len(samples) != self.policy.samples and self.policy.quantity not in POOLED:
            raise UserError(f"{location}: probabilities must have {self.policy.samples} samples, as the policy's "
                            f"{self.policy.quantity} was fitted with; given {len(samples)}.")  # fmt: skip
        for sample in samples:
            for name in sample:
                if name not in self.classes:
                    raise UnknownName(f"class of {location}", name, self.classes)
            if missing := [name for name in self.classes if name not in sample]:
                raise UserError(f"{location}: probabilities need the class {missing[0]!r}.")
            self._check_probabilities(sample, f"{location}.probabilities")
        values = np.array([[[sample[name] for name in self.classes]] for sample in samples])
        return as_logits(values, "probs", self.target, name=f"{location}.probabilities")[:, 0]

    def _check_probabilities(self, sample: Probabilities, location: str) -> None:
        for name, value in sample.items():
            if not 0 <= value <= 1 + SLACK:
                raise UserError(f"{location}: that of {name!r} must lie between 0 and 1; given {value:g}.")
        if self.target != "multilabel" and abs((total := sum(sample.values())) - 1) > TOLERANCE:
            raise UserError(f"{location} must sum to one within {TOLERANCE:g}; they sum to {total:.6g}.")

    # --- decisions --------------------------------------------------------------------------------------------------

    def decide(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Return the decision about each row, as :class:`~dubio.serving.messages.Decision` in plain values.

        Raises:
            UserError: When the model refuses a row.
        """
        decisions: list[dict[str, Any]] = [{}] * len(items)
        for indices, predictions in self._predictions(items):
            pooled = predictions.probs.tolist()  # first: what follows then need not pool the samples again
            rows = _refer_each(predictions) if self.policy is None else self._apply(self.policy, predictions)
            for index, row, probabilities in zip(indices, rows, pooled, strict=True):
                decisions[index] = {
                    "id": items[index].id,
                    "answer": row.predicted,
                    "probabilities": dict(zip(self.classes, probabilities, strict=True)),
                    "uncertainty": row.uncertainty,
                    "decision": DECISIONS[row.retained],
                    "reason": row.reason,
                }
        return decisions

    def _apply(self, policy: Policy, predictions: Predictions) -> list[RowDecision]:
        rows = decide_each(policy, predictions, allow_other=self.force)
        if predictions.system is None:  # given by another program, which is not to be computed again
            return rows
        from dubio.deployment.model import NEAR, near_threshold  # with torch, as the model

        near = near_threshold(uncertainty(predictions, policy.quantity), policy.threshold)
        for index in np.flatnonzero(near).tolist():
            rows[index] = rows[index]._replace(reason=rows[index].reason + NEAR)
        return rows

    def _predictions(self, items: Sequence[Item]) -> list[tuple[list[int], Predictions]]:
        """Return predictions of the rows, those of the model and those given, by their number of samples."""
        groups: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(0 if item.logits is None else len(item.logits), []).append(index)
        parts = []
        for samples, indices in groups.items():
            if samples:
                stacked = np.stack([items[index].logits for index in indices], axis=1)  # type: ignore[misc]
                parts.append((indices, self._as_predictions(stacked)))
            elif self.model is not None:
                names = [f"row {items[index].id!r}" for index in indices]
                parts.append((indices, self.model.predictions([items[index].cells or {} for index in indices], names)))
        return parts

    def _as_predictions(self, logits: Logits) -> Predictions:
        shape = logits.shape[1:] if self.target == "multilabel" else logits.shape[1:2]
        labels = np.full(shape, 0 if self.target == "multilabel" else UNLABELLED, dtype=np.int64)
        own = {} if self.policy is None else {
            "temperature": self.policy.temperature, "empty_decision": self.policy.empty_decision
        }  # fmt: skip
        return Predictions(logits, labels, self.target, classes=self.classes, **own)  # type: ignore[arg-type]


def _refer_each(predictions: Predictions) -> list[RowDecision]:
    """Refer every row, with the confidence by which the queue is ordered."""
    answers, uncertainties = class_names(None, predictions), rounded_uncertainty(predictions, CONFIDENCE).tolist()
    rows = zip(answers, confidence(predictions).tolist(), uncertainties, strict=True)
    return [RowDecision(False, *row, REFER_ALL) for row in rows]
