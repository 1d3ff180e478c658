"""Each way in which a method can be wrong has a sentence of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from dubio.core.registry import METHODS, Entry
from dubio.core.types import Task
from dubio.encoders import Encoded
from dubio.methods import encode_split
from dubio.methods.recipe import Recipe
from dubio.networks.network import Scores
from dubio.networks.noise import DropoutEdit
from dubio.testing import assert_ok, check_method
from dubio.training.objectives import Objective


def entry(factory: Callable[..., Any]) -> Entry[Any]:
    return Entry("mine", factory, "tests", "A method.", {})


def told(factory: Callable[..., Any]) -> list[str]:
    return [finding.problem for finding in check_method(entry(factory))]


@pytest.mark.parametrize("name", ["deterministic", "mc-dropout", "mc-heteroscedastic-concrete-dropout"])
def test_built_in_methods_pass(name: str) -> None:
    assert_ok(check_method(METHODS.entry(name), arguments={"epochs": 20}))


def test_an_ensemble_passes() -> None:
    assert_ok(check_method("deep-ensemble", arguments={"epochs": 15, "members": 2}))


@pytest.mark.parametrize("inputs", ["text", "image"])
def test_built_in_methods_pass_on_texts_and_images(inputs: Any) -> None:
    assert_ok(check_method("mc-dropout", inputs=(inputs,), arguments={"epochs": 25}))


def test_no_method() -> None:
    assert told(lambda: "deterministic") == ["The function returned str, which is not a method."]


def test_arguments_must_be_keyword_only_and_typed() -> None:
    def mine(p=0.5, *, samples=3):  # type: ignore[no-untyped-def]
        return "nothing"

    found = told(mine)
    assert "The argument 'p' is not keyword-only" in found[0]
    assert "The argument 'samples' has no type hint" in found[1]


def test_nonsense_is_refused_with_the_reason() -> None:
    def mine() -> Recipe:
        return Recipe("mine", samples=10)

    assert "Making it raised UserError" in told(mine)[0]
    assert "nothing in this recipe is random" in told(mine)[0]


@dataclass(frozen=True)
class NoPart:
    """An objective without a JSON form."""

    epochs: int = 5
    patience: int = 0


def test_a_recipe_that_cannot_be_written_down() -> None:
    def mine() -> Recipe:
        return Recipe("mine", objective=NoPart())  # type: ignore[arg-type]

    assert "It has no JSON form" in told(mine)[0]


def test_a_recipe_that_is_made_at_random() -> None:
    def mine() -> Recipe:
        return Recipe("mine", edits=(DropoutEdit(float(np.random.default_rng().uniform(0.1, 0.4))),))

    assert "Made twice, it is not the same method." in told(mine)


def test_a_recipe_that_does_not_learn() -> None:
    def mine() -> Recipe:
        return Recipe("mine", objective=Objective(epochs=0))

    assert any("its accuracy is" in text for text in told(mine))


def test_samples_that_say_the_same() -> None:
    def mine() -> Recipe:
        return Recipe("mine", edits=(DropoutEdit(0.0),), samples=3, objective=Objective(epochs=15))

    assert told(mine) == ["All 3 samples are the same."]


class Centres:
    """A method that is no recipe: the class whose centre is nearest, with a seeded jitter; one thing may be wrong."""

    name = "centres"

    def fit(self, task: Task, network: Any, *, seed: int, context: Any) -> Any:
        (train,) = task.of_kind("train")
        values = torch.from_numpy(self.encoded(context, task).values)  # type: ignore[union-attr]
        labels = torch.from_numpy(train.data.labels)
        centres = torch.stack([values[labels == k].mean(dim=0) for k in range(len(task.classes))])
        return Drawable(centres + self.jitter(seed, centres.shape), self.noise)

    def encoded(self, context: Any, task: Task) -> Encoded:
        (train,) = task.of_kind("train")
        return encode_split(context.encoding, train, train)

    def jitter(self, seed: int, shape: Any) -> torch.Tensor:
        return 0.01 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))

    def noise(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        return logits


@dataclass(frozen=True)
class Drawable:
    centres: torch.Tensor
    noise: Callable[[torch.Tensor, Any], torch.Tensor]
    member: tuple[int, ...] = (0,)

    def draw(self, seed: int) -> Drawable:
        return self

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"centres": self.centres}

    def predict(self, batch: torch.Tensor, rows: Any) -> Scores:
        return Scores(self.noise(-torch.cdist(batch, self.centres), rows)[None])


class GlobalRandomness(Centres):
    def jitter(self, seed: int, shape: Any) -> torch.Tensor:
        return 0.01 * torch.randn(shape)


class SeedIgnored(Centres):
    def jitter(self, seed: int, shape: Any) -> torch.Tensor:
        return torch.zeros(shape)


class BatchNoise(Centres):
    def noise(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        return logits + 0.3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))


class NotANumber(Centres):
    def noise(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        return logits * float("nan")


class WrongShape(Centres):
    def noise(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        return logits[:, :2]


class Backwards(Centres):
    def noise(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        return -logits


class Spoils(Centres):
    def fit(self, task: Task, network: Any, *, seed: int, context: Any) -> Any:
        made = super().fit(task, network, seed=seed, context=context)
        np.asarray(task.splits[0].data.inputs)[0] = 0.0
        return made


class NoPosterior(Centres):
    def fit(self, task: Task, network: Any, *, seed: int, context: Any) -> Any:
        return {"weights": 1}


class Fails(Centres):
    def fit(self, task: Task, network: Any, *, seed: int, context: Any) -> Any:
        raise RuntimeError("out of ideas")


class NoSeed(Centres):
    def fit(self, task: Task, network: Any) -> Any:  # type: ignore[override]
        return None


def test_a_method_that_is_no_recipe_passes() -> None:
    assert told(Centres) == []


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (GlobalRandomness, "Fitted twice with one seed, the weights differ."),
        (SeedIgnored, "Fitted with two seeds, the weights are the same"),
        (BatchNoise, "Predicted in batches of 7, the logits differ."),
        (NotANumber, "The logits hold NaN or +inf."),
        (WrongShape, "The logits have shape (1, 90, 2); member, examples and classes say (1, 90, 3)."),
        (Backwards, "accuracy is 0%"),
        (Spoils, "Fitting changed the data of split 'train'."),
        (NoPosterior, "fit returned dict, which has no method 'draw'."),
        (Fails, "Fitting 120 toy examples raised RuntimeError: out of ideas."),
        (NoSeed, "fit does not take 'seed'."),
    ],
)
def test_a_broken_method_is_told_what_is_wrong(method: type[Centres], sentence: str) -> None:
    found = told(method)
    assert any(sentence in text for text in found), found


def test_predictions_drawn_without_the_seed() -> None:
    class Loose(Centres):
        def noise(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
            return logits + 0.1 * torch.randn(logits.shape)

    assert "Drawn twice with one seed, the predictions differ." in told(Loose)


def test_member_must_name_every_sample() -> None:
    class TwoMembers(Centres):
        def fit(self, task: Task, network: Any, *, seed: int, context: Any) -> Any:
            return replace(super().fit(task, network, seed=seed, context=context), member=(0, 1))

    assert "member, examples and classes say (2, 90, 3)" in told(TwoMembers)[0]
