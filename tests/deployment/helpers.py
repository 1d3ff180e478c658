"""Small tasks of each modality, and models of a method fitted on them within the test's process."""

from __future__ import annotations

import numpy as np

from dubio.core.registry import METHODS
from dubio.core.specs import identity
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.deployment.inputs import InputForm
from dubio.deployment.model import Model, ModelFit, ModelNames
from dubio.encoders import encoding_for
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
from dubio.methods.estimator import EstimatorRecipe

NETWORKS = {"text": "textcnn", "table": "mlp", "image": "cnn"}
WORDS = ("good", "fine", "bad", "poor", "film", "plot", "actor", "scene", "slow", "fast")


def split_rows(name, inputs, target, rows, labels, classes):
    cuts = {"train": slice(0, 40), "val": slice(40, 55), "cal": slice(55, 70), "id": slice(70, None)}
    taken = {kind: rows[cut] for kind, cut in cuts.items()}
    splits = tuple(Split.of(kind, kind, Examples(taken[kind], labels[cut])) for kind, cut in cuts.items())
    return Task(name, inputs, target, classes, splits, SourceCard("made", "1", "none", "none"))


def text_task(rows=90, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, size=rows)
    own = (("good", "fine", "fast"), ("bad", "poor", "slow"))
    texts = tuple(
        " ".join([*generator.choice(WORDS, generator.integers(2, 9)), *generator.choice(own[label], 2)])
        for label in labels
    )
    return split_rows("texts", "text", "multiclass", texts, labels, ("good", "bad"))


def table_task(rows=90, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, size=rows)
    values = generator.normal(size=(rows, 4)) + labels[:, None] * np.array([1.0, -1.0, 0.5, 0.0])
    values[generator.random(values.shape) < 0.05] = np.nan
    return split_rows("numbers", "table", "multiclass", values, labels, ("a", "b", "c"))


def image_task(rows=90, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, size=rows)
    pixels = (generator.random((rows, 8, 8, 1)) * 80 + labels[:, None, None, None] * 60).astype(np.uint8)
    return split_rows("images", "image", "multiclass", pixels, labels, ("dark", "light"))


TASKS = {"text": text_task, "table": table_task, "image": image_task}
FORMS = {
    "text": InputForm("text", ("review",)),
    "table": InputForm("table", ("height", "width", "age", "dose")),
    "image": InputForm("image", ("image",), (8, 8, 1)),
}


def fitted_model(method, task, *, network=None, encoding=None, seed=0, **arguments):
    """Fit every member of a method on a task, and return the model."""
    recipe = METHODS.make(method, **arguments)
    network = network if isinstance(network, NetworkSpec) else NetworkSpec(network or NETWORKS[task.inputs])
    encoding = encoding or encoding_for(task.inputs, {"min_frequency": 1} if task.inputs == "text" else {})
    if isinstance(recipe, EstimatorRecipe):
        encoding = recipe.encoding(task.inputs)
    fits = []
    for member in range(recipe.members):
        start = start_id = None
        links = [recipe] if isinstance(recipe, EstimatorRecipe) else list(recipe.chain())
        for link in links:
            spec = fit_spec(link, task, encoding, network, seed=seed, member=member, start_id=start_id)
            result = fit(spec, task, FitContext(start=start))
            start, start_id = result.tensors, identity(spec)
        prediction = pred_spec(recipe, start_id, seed=seed, member=member)
        weights = identity({name: array.tolist() for name, array in sorted(result.tensors.items())})
        fits.append(ModelFit(spec, prediction, result.tensors, result.encoder, weights))
    names = ModelNames(method, method, task.name, network.name, "test-run", seed)
    return Model(names, FORMS[task.inputs], fits)


def rows_of(task, kind="id"):
    """Return the raw rows of a split."""
    inputs = task.of_kind(kind)[0].data.inputs
    columns = FORMS[task.inputs].columns
    return [dict(zip(columns, row if task.inputs == "table" else [row], strict=True)) for row in inputs]
