"""Argument groups that several methods share: dropout, how a network is trained, how a training is continued.

The registry lets users write the fields of a group as arguments of a method (see :mod:`dubio.core.registry`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from dubio.core.errors import UserError
from dubio.core.validate import Constraint, NonNegative, NonNegativeFloat, Positive
from dubio.inference.augmentation import Affine, Augmentation, ResizedCrop, ShiftFlip, Views
from dubio.methods.recipe import LAYERS, LAYERS_IN_WORDS, Recipe
from dubio.networks.heads.head import Head
from dubio.networks.heads.linear import Softmax, SoftmaxOnLabels
from dubio.networks.network import Edit
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit
from dubio.training.collectors import BestOnValidation, Collector, Last
from dubio.training.objectives import ClassWeights, Objective
from dubio.training.optimisers import SGD, Adam, AdamW, Optimiser
from dubio.training.schedules import Constant, Cosine, Cut, Linear, LinearTail, Schedule, Step

OptimiserName = Literal["adam", "adamw", "sgd"]
ScheduleName = Literal["constant", "cosine", "linear", "step", "step_45", "step_130", "linear_tail"]
CollectorName = Literal["best_on_validation", "last"]
TailOptimiser = Literal["sgd", "adam"]

StoredLayer = Annotated[
    int | str, Constraint(f"({LAYERS_IN_WORDS})", lambda layer: re.fullmatch(LAYERS, str(layer)) is not None)
]
"""A layer of a recipe; its number may be written as a number, and is a text in the recipe."""

_SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "constant": Constant,
    "cosine": Cosine,
    "linear": Linear,
    "step": Step,
    # 0.1^(epoch // 30) over 45 and over 130 epochs (pitfalls paper, ImageNet: VI, and ordinary training)
    "step_45": lambda: Step((30 / 45,)),
    "step_130": lambda: Step(tuple(30 * k / 130 for k in (1, 2, 3, 4))),
    "linear_tail": LinearTail,
}
_COLLECTORS: dict[str, Callable[[], Collector]] = {"best_on_validation": BestOnValidation, "last": Last}


NORM_EXAMPLES = 2048
"""Training examples for the batch-norm statistics of each weight draw, each of which takes a forward pass of its own.
Statistics of 512 examples already predict as well as those of all, on digits (``tests/training``)."""


@dataclass(frozen=True)
class ImageViews:
    """Random views of images, while training and at prediction.

    Attributes:
        shift: Largest shift in pixels.
        shift_fraction: Largest shift as a fraction of the image's side.
        flip: Probability of a horizontal flip.
        flip_vertical: Probability of a vertical flip.
        rotation: Largest rotation in degrees.
        zoom: Largest relative change of scale.
        crop: Smallest fraction of the area that a resized crop shows; 0 for no resized crop.
        views: Number of random views of each example at prediction; 0 predicts the example itself.
    """

    shift: int = 0
    shift_fraction: float = 0.0
    flip: float = 0.0
    flip_vertical: float = 0.0
    rotation: float = 0.0
    zoom: float = 0.0
    crop: float = 0.0
    views: int = 0

    def augmentation(self) -> Augmentation | None:
        """Return the augmentation of training examples, or None; shifts by whole pixels leave pixel values unchanged.

        Raises:
            UserError: For a resized crop combined with other moves, which it already makes.
        """
        if self.crop:
            for other in ("shift", "zoom", "rotation", "flip_vertical", "shift_fraction"):
                if value := getattr(self, other):
                    raise UserError(f"crop={self.crop} combines with flip alone; {other} must be 0, given {value}.")
            return ResizedCrop(area=self.crop, flip=self.flip)
        if self.zoom or self.rotation or self.flip_vertical or self.shift_fraction:
            return Affine(self.zoom, self.shift, self.rotation, self.flip, self.flip_vertical, self.shift_fraction)
        return ShiftFlip(self.shift, self.flip) if self.shift or self.flip else None

    def at_prediction(self, method: str) -> Views | None:
        """Return the views of each example at prediction, or None.

        Raises:
            UserError: When all views would be the same.
        """
        if not self.views:
            return None
        augmentation = self.augmentation()
        if augmentation is None:
            moves = "shift, shift_fraction, flip, flip_vertical, rotation, zoom and crop"
            raise UserError(f"{method}: views={self.views}, but {moves} are all 0: every view would be the same.")
        return Views(augmentation, self.views)


@dataclass(frozen=True)
class FixedRate:
    """Dropout of a fixed rate, with weight decay.

    Attributes:
        p: The probability that an input is dropped.
        shrink: Decay of the weights after every step.
    """

    p: float = 0.5
    shrink: float = 1e-4

    softmax_on_labels: ClassVar[bool] = False

    def edit(self) -> Edit:
        """Return the edit of a network."""
        return DropoutEdit(self.p)


@dataclass(frozen=True)
class LearnedRate:
    """Concrete dropout: a rate learned at every site.

    Attributes:
        start_rate: The rate to start from.
        length_scale: l of the penalty on weights and rates.
        weight_penalty: Fixed factor of the penalty on weights; by default length_scale²/2N, N the training examples.
        rate_penalty: Fixed factor of the penalty on rates; by default 1/N.
        softmax_on_labels: Erratum of the text paper's code: on multi-label tasks a softmax instead of sigmoids; a
            heteroscedastic head keeps its sigmoids, as it does there.
    """

    start_rate: float = 0.1
    length_scale: float = 0.1
    weight_penalty: NonNegativeFloat | None = None
    rate_penalty: NonNegativeFloat | None = None
    softmax_on_labels: bool = False

    shrink: ClassVar[float] = 0.0

    def edit(self) -> Edit:
        """Return the edit of a network."""
        return ConcreteDropoutEdit(
            self.start_rate, self.length_scale, weight_penalty=self.weight_penalty, rate_penalty=self.rate_penalty
        )


@dataclass(frozen=True)
class Training:
    """How one network is trained.

    Attributes:
        epochs: Passes over the training data, at most.
        batch: Examples per step.
        patience: Epochs without a better validation loss before training stops; 0 never stops early.
        clip: Largest norm of the gradient; 0 for no limit.
        class_weights: Weights of the classes in the loss, see :class:`~dubio.training.objectives.Objective`.
        optimiser: ``adam``, ``adamw`` or ``sgd``.
        lr: Learning rate.
        l2: Weight decay: in the loss for adam and sgd, decoupled and scaled by the learning rate for adamw.
        schedule: How the learning rate changes.
        collect: Which weights the fit keeps.
        images: Random views of images.
        fixed_batches: Erratum of the text paper's code: batches are cut once, of texts sorted by length; epochs change
            the order of these batches alone.
        store_features: The layer whose features are stored with predictions: ``last`` (before the head) or the number
            of a stage, from 0; empty stores none.
    """

    epochs: NonNegative = 45
    batch: Positive = 32
    patience: int = 15
    clip: float = 10.0
    class_weights: ClassWeights = "none"
    optimiser: OptimiserName = "adam"
    lr: float = 1e-3
    l2: float = 0.0
    schedule: ScheduleName = "constant"
    collect: CollectorName = "best_on_validation"
    images: ImageViews = ImageViews()
    fixed_batches: bool = False
    store_features: StoredLayer = ""

    def recipe(
        self,
        name: str,
        title: str,
        *,
        edits: tuple[Edit, ...] = (),
        rate: FixedRate | LearnedRate | None = None,
        head: Head = Softmax(),
        samples: int | None = None,
    ) -> Recipe:
        """Return the recipe of one network trained like this.

        Args:
            name: The method's name.
            title: Its title in a report.
            edits: What bounds the network's weights or makes them Gaussian.
            rate: The dropout at its noise sites, if any; a fixed rate comes with decay after every step of Adam.
            head: The network's last layer.
            samples: Noise draws at prediction, at least 1; None is a deterministic pass.

        Raises:
            UserError: When an argument cannot be used.
        """
        if samples is not None and samples < 1:
            reason = "0 would be the same method without noise at prediction"
            raise UserError(f"{name}: samples must be at least 1 ({reason}); given {samples}.")
        return Recipe(
            name,
            title,
            edits=edits if rate is None else (*edits, rate.edit()),
            head=SoftmaxOnLabels() if head == Softmax() and rate is not None and rate.softmax_on_labels else head,
            objective=self.objective(),
            optimiser=self._optimiser(name, 0.0 if rate is None else rate.shrink),
            schedule=_SCHEDULES[self.schedule](),
            collect=_COLLECTORS[self.collect](),
            samples=samples or 0,
            views=self.images.at_prediction(name),
            features=str(self.store_features),
        )

    def start(self) -> Recipe:
        """Return the recipe of the plain network trained like this, for another training to start from.

        It is that of the method ``deterministic`` with the same arguments: names are not part of an identity, so that
        a benchmark with both trains the network once.
        """
        return replace(self, images=replace(self.images, views=0)).recipe("", "").fit_part()

    def objective(self) -> Objective:
        """Return the objective."""
        views = self.images.augmentation()
        shared = self.batch, self.epochs, self.patience, self.clip, self.class_weights
        return Objective(*shared, augmentation=views, fixed_batches=self.fixed_batches)

    def _optimiser(self, method: str, shrink: float) -> Optimiser:
        if self.optimiser == "adam":
            return Adam(self.lr, self.l2, shrink)
        if shrink:
            raise UserError(f"{method}: shrink needs optimiser='adam'; set shrink=0 to use {self.optimiser!r}.")
        return AdamW(self.lr, self.l2) if self.optimiser == "adamw" else SGD(self.lr, l2=self.l2)


def continued(recipe: Recipe, collect: Collector) -> Recipe:
    """Return the recipe that continues the training of another one for zero epochs, with its own collector.

    The training itself is that of any recipe with the same fit part: a benchmark with both trains the network once.
    """
    objective = replace(recipe.objective, epochs=0, patience=0)
    return replace(recipe, start=recipe.fit_part(), objective=objective, schedule=Constant(), collect=collect)


@dataclass(frozen=True)
class Tail:
    """How a trained network is trained further.

    Attributes:
        schedule_epochs: Length of the first training's schedule in epochs, of which ``epochs`` are run; 0 runs all of
            it. A first training that is cut short is shared with no other method.
        tail_optimiser: The optimiser of the tail.
        tail_lr: Its learning rate.
    """

    schedule_epochs: int = 0
    tail_optimiser: TailOptimiser = "sgd"
    tail_lr: float = 1e-2

    def recipe(
        self, name: str, title: str, training: Training, *, epochs: int, schedule: Schedule, collect: Collector
    ) -> Recipe:
        """Return the recipe that continues a trained network.

        Args:
            name: The method's name.
            title: Its title in a report.
            training: How the network is trained first.
            epochs: Epochs of the tail.
            schedule: How the tail's learning rate changes.
            collect: Which weights of the tail are kept.
        """
        start = self._start(name, training)
        kind = SGD if self.tail_optimiser == "sgd" else Adam
        return Recipe(
            name,
            title,
            start=start,
            head=start.head,
            objective=replace(start.objective, epochs=epochs, patience=0),
            optimiser=kind(lr=self.tail_lr, l2=training.l2),
            schedule=schedule,
            collect=collect,
            views=training.images.at_prediction(name),
            features=str(training.store_features),
        )

    def _start(self, name: str, training: Training) -> Recipe:
        start, planned, epochs = training.start(), self.schedule_epochs, training.epochs
        if planned in (0, epochs):
            return start
        if planned < epochs:
            limit = f"at least epochs={epochs}, or 0 for the same"
            raise UserError(f"{name}: schedule_epochs, the length of the schedule, must be {limit}; given {planned}.")
        return replace(start, schedule=Cut(start.schedule, epochs / planned))
