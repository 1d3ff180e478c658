"""A deployed model: raw rows in, predictions, uncertainties and decisions out; it looks like a scikit-learn classifier.

Noise is drawn by (seed, sample, hash of the row), so that a row gets the same samples alone or in any batch. What is
left of the batch is the order of floating-point sums: probabilities agree to 1e-5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dubio.calibration.recalibration import Recalibration, apply_recalibration, recalibration_to_json
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.specs import canonical, identity
from dubio.core.types import EmptyDecision, Examples, FloatArray, Modality, StrArray, Target
from dubio.deployment.inputs import InputForm, row_keys
from dubio.deployment.training_summary import TrainingSummary
from dubio.encoders import Encoder
from dubio.methods.encoding_cache import encoder_of
from dubio.methods.prediction import OWN, FitPredictor, own_scores
from dubio.metrics.decisions import predicted, predicted_labels
from dubio.metrics.quantities import uncertainty
from dubio.referral.application import Applied, apply_policy
from dubio.referral.policy import Policy
from dubio.referral.shift import check_same_system
from dubio.referral.units import rounded

TOLERANCE = 1e-5
"""Differences of probabilities and scores between batch sizes, processes and machines are smaller than this."""

PARTS = ("empty_decision", "recalibration", "policy", "training", "device")
"""The further arguments of a model."""

NEAR = f"; within {TOLERANCE:g} of the threshold, so that another machine may decide otherwise"
"""What the reason of such a decision ends with."""

NOISE = 1
"""Version of the noise of deployed predictions, part of their identity."""


@dataclass(frozen=True, eq=False)
class ModelFit:
    """One fit of a model, as a store or a model's folder holds it.

    Attributes:
        spec: The fit's specification.
        prediction: The specification of its predictions.
        tensors: Its tensors.
        encoder: Its encoder as JSON.
        weights: SHA-256 of the file of its tensors.
    """

    spec: Mapping[str, Any]
    prediction: Mapping[str, Any]
    tensors: Mapping[str, NDArray[Any]]
    encoder: Mapping[str, Any]
    weights: str


@dataclass(frozen=True)
class ModelNames:
    """Where a model comes from, in names.

    Attributes:
        method: The method, as the run calls it.
        title: Its title.
        task: The task.
        network: The network.
        run: The run.
        seed: The run's seed.
    """

    method: str
    title: str
    task: str
    network: str
    run: str
    seed: int


class Model:
    """A trained method that predicts raw rows.

    It behaves like a fitted scikit-learn classifier: :meth:`fit` changes nothing, and a clone is the model itself.

    Attributes:
        names: Method, task, network, run and seed.
        form: The form of a row.
        fits: Its fits, more than one of an ensemble.
        recalibration: A temperature or map that is applied to every prediction, or None.
        policy: The policy of :meth:`decide`, or None.
        training: The features of the run's rows, to which new ones are compared; None where they are not known.
        empty_decision: How a multi-label row is decided that has no label above one half.
        device: The device it predicts on.
    """

    def __init__(
        self,
        names: ModelNames,
        form: InputForm,
        fits: Sequence[ModelFit],
        *,
        empty_decision: EmptyDecision = "empty",
        recalibration: Recalibration | None = None,
        policy: Policy | None = None,
        training: TrainingSummary | None = None,
        device: str = "cpu",
    ) -> None:
        """Make a model; :func:`dubio.load` and :meth:`dubio.Run.predictor` do."""
        self.names, self.form, self.fits = names, form, tuple(fits)
        self.recalibration, self.policy, self.training, self.device = recalibration, policy, training, device
        self.empty_decision: EmptyDecision = empty_decision

    @property
    def inputs(self) -> Modality:
        """The modality of a row: ``"text"``, ``"table"`` or ``"image"``."""
        return self.form.inputs

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a row."""
        return self.form.columns

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return tuple(self.fits[0].spec["task"]["classes"])

    @property
    def target(self) -> Target:
        """The kind of prediction: one class per row, several labels, or ordered classes."""
        target: Target = self.fits[0].spec["task"]["target"]
        return target

    @property
    def classes_(self) -> StrArray:
        """Names of the classes, as scikit-learn calls them."""
        return np.array(self.classes, dtype=np.str_)

    @cached_property
    def identity(self) -> str:
        """The hash of everything that decides the outputs; the policy, which decides about them, is not part of it."""
        fits = [
            {"fit": identity(fit.spec), "weights": fit.weights, "encoder": identity(fit.encoder)}
            | {"prediction": {key: value for key, value in fit.prediction.items() if key != "fit"}}
            for fit in self.fits
        ]
        recalibration = None if self.recalibration is None else recalibration_to_json(self.recalibration)
        parts = {"fits": fits, "recalibration": recalibration, "empty_decision": self.empty_decision, "noise": NOISE}
        return identity({"kind": "model", "schema": 1, **parts})

    @cached_property
    def _predictors(self) -> tuple[FitPredictor, ...]:
        return tuple(
            FitPredictor(fit.spec, fit.prediction, fit.tensors, fit.encoder, device=self.device) for fit in self.fits
        )

    # --- predictions ------------------------------------------------------------------------------------------------

    def predictions(self, rows: Any, references: Sequence[str] = ()) -> Predictions:
        """Return the predictions about raw rows, with every sample.

        Args:
            rows: A sequence of mappings from :attr:`columns` to values, or of texts, images or rows of numbers; an
                array; a data frame. A number may be a text or None, an image uint8 ``[H, W, C]`` or a file's bytes.
            references: The name of each row in messages; its number from 0 if omitted.

        Raises:
            UserError: Naming row and column of the first value that does not fit.
        """
        examples, notes = self.form.examples(rows, references)
        return self.of_examples(examples, notes)

    def of_examples(self, examples: Examples, notes: tuple[str, ...] = ()) -> Predictions:
        """Return the predictions about examples, as :meth:`InputForm.examples` makes them of rows."""
        keys = row_keys(examples.inputs)
        encoded = {text: encoder_of(text).encode(examples) for text in {fit.encoder for fit in self._predictors}}
        scores: list[dict[str, NDArray[Any]]] = []
        member: list[int] = []
        for fit in self._predictors:
            scores.append(fit.scores(encoded[fit.encoder], keys))
            first = max(member, default=-1) + 1
            member += [first + index for index in fit.member]
        shared = set.intersection(*(set(arrays) for arrays in scores))
        joined: dict[str, Any] = {name: np.concatenate([arrays[name] for arrays in scores]) for name in sorted(shared)}
        own = own_scores(joined)
        target = self.target
        labels = np.zeros(joined["logits"].shape[1:], np.int64) if target == "multilabel" else examples.labels
        predictions = Predictions(
            joined.pop("logits"), labels, target, member=np.array(member, dtype=np.int64), classes=self.classes,
            empty_decision=self.empty_decision, notes=notes, system=self.identity, scores=own,
            **{name: array for name, array in joined.items() if not name.startswith(OWN)},
        )  # fmt: skip
        return predictions if self.recalibration is None else apply_recalibration(self.recalibration, predictions)

    def predict_proba(self, rows: Any) -> FloatArray:
        """Return the pooled probabilities ``[rows, classes]``; of several labels, the probability of each."""
        return self.predictions(rows).probs

    def predict(self, rows: Any) -> StrArray | NDArray[np.int64]:
        """Return the name of the most probable class of each row; of several labels, 0 or 1 ``[rows, classes]``."""
        predictions = self.predictions(rows)
        if predictions.target == "multilabel":
            return predicted_labels(predictions).astype(np.int64)
        return self.classes_[predicted(predictions)]

    def score(self, rows: Any, labels: Any) -> float:
        """Return the accuracy: the share of rows whose class, or all of whose labels, are predicted."""
        equal = np.asarray(self.predict(rows) == np.asarray(labels))
        return float(equal.reshape(len(equal), -1).all(axis=1).mean())

    def uncertainty(self, rows: Any, quantity: str | None = None) -> FloatArray:
        """Return the uncertainty of each row, higher where it is less certain.

        Args:
            rows: As for :meth:`predictions`.
            quantity: A quantity of dubio such as ``"entropy"``; that of the policy, else ``"confidence"``, if omitted.
        """
        return uncertainty(self.predictions(rows), quantity or self._quantity)

    @property
    def _quantity(self) -> str:
        return "confidence" if self.policy is None else self.policy.quantity

    def decide(self, rows: Any, policy: Policy | None = None, *, force: bool = False) -> Applied:
        """Return for each row whether it is retained or referred, with the reason.

        Args:
            rows: As for :meth:`predictions`.
            policy: Another policy than the model's own.
            force: Accept a policy that was fitted for another model.

        Raises:
            UserError: When there is no policy, or it is for another system.
        """
        return self.decided(self.predictions(rows), policy, force=force)

    def decided(self, predictions: Predictions, policy: Policy | None = None, *, force: bool = False) -> Applied:
        """Return the decisions about the model's own predictions, as :meth:`decide` does."""
        chosen = self.check_policy(policy or self.policy, force=force)
        applied = apply_policy(chosen, predictions, allow_other=force)
        if predictions.target == "multilabel":  # which has no mark for rows whose labels are not known
            applied = replace(applied, retained_error=None, retained_labelled=0, rates=(), outcome=None, unchecked=())
        return with_near_threshold(applied, chosen, predictions)

    def check_policy(self, policy: Policy | None, *, force: bool = False) -> Policy:
        """Return a policy that may decide about this model's predictions.

        Raises:
            UserError: When it is None, is for other classes, or was fitted for another model and is not forced.
        """
        if policy is None:
            raise UserError("this model has no policy: give one (policy=..., --policy), or export the model with one.")
        check_same_system(policy, self._example, allow_other=force)
        return policy

    def check_usable(self) -> None:
        """Predict a row without content: what is wrong with the fits shows here, and not at the first real row."""
        _ = self._example

    @cached_property
    def _example(self) -> Predictions:
        """A prediction of the model about a row without content, by which other things are seen to be made for it."""
        values: dict[str, Any] = {"text": "", "table": [None] * len(self.columns)}
        return self.predictions([values.get(self.inputs, np.zeros(self.form.shape, dtype=np.uint8))])

    # --- scikit-learn -----------------------------------------------------------------------------------------------

    def fit(self, rows: Any = None, labels: Any = None) -> Self:
        """Return the model as it is: it has been trained. A pipeline may call this."""
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what the model is made of, by name."""
        return {**vars(self.names), "members": len(self.fits), "samples": self.fits[0].prediction["samples"]}

    def set_params(self, **parameters: Any) -> Self:
        """Return the model; a trained one has no parameters to set.

        Raises:
            UserError: For any parameter.
        """
        if parameters:
            raise UserError(f"a trained model has no parameters to set; given {', '.join(parameters)}.")
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        multilabel = self.target == "multilabel"
        inputs = InputTags(string=self.inputs == "text", allow_nan=self.inputs == "table")
        labels = TargetTags(required=False, multi_output=multilabel)
        return Tags("classifier", labels, classifier_tags=ClassifierTags(multi_label=multilabel), input_tags=inputs)

    def with_parts(self, **parts: Any) -> Model:
        """Return the same fits with another ``policy``, ``recalibration`` or ``training`` summary."""
        own = {name: getattr(self, name) for name in PARTS}
        fresh = Model(self.names, self.form, self.fits, **own | parts)
        if "_predictors" in vars(self):
            vars(fresh)["_predictors"] = self._predictors
        return fresh

    def differences(self, rows: Any) -> tuple[str, ...]:
        """Return a sentence for each feature in which rows look unlike those of the run; none where it has no summary.

        Args:
            rows: As for :meth:`predictions`; the more there are, the smaller the differences that show.
        """
        if self.training is None:
            return ()
        counter = self.training.counter()
        counter.add(self.form.examples(rows)[0], self.encoder)
        return counter.warnings()

    @property
    def encoder(self) -> Encoder:
        """The encoder of the first fit."""
        return encoder_of(canonical(self.fits[0].encoder))

    def __repr__(self) -> str:
        return f"<model {self.names.method!r} on {self.names.task!r}, {self.identity[:12]}>"


def with_near_threshold(applied: Applied, policy: Policy, predictions: Predictions) -> Applied:
    """Return decisions whose reasons say where a score lies within :data:`TOLERANCE` of the threshold.

    Another batch size, process or machine may decide such a row otherwise.
    """
    near = near_threshold(uncertainty(predictions, policy.quantity), policy.threshold)
    if not near.any():
        return applied
    count = int(near.sum())
    note = f"{count} {'score lies' if count == 1 else 'scores lie'} within {TOLERANCE:g} of the threshold."
    return replace(applied, reasons=applied.reasons.with_ending(near, NEAR), notes=(*applied.notes, note))


def near_threshold(scores: FloatArray, threshold: float) -> NDArray[np.bool_]:
    """Return which scores lie within :data:`TOLERANCE` of the threshold, or, being rounded, would cross it.

    A method's own uncertainty, such as a distance, may be large: beyond 1 the tolerance is relative.
    """
    if not np.isfinite(threshold):  # every row is retained, or referred
        return np.zeros(len(scores), dtype=np.bool_)
    reach = TOLERANCE * max(1.0, abs(threshold))
    below, above = (rounded(scores + shift) <= threshold for shift in (-reach, reach))
    return np.asarray((below != above) | (np.abs(scores - threshold) <= reach))
