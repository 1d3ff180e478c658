"""Examples of a run: which rows are stored, as texts, columns or thumbnails, and none where none may be."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dubio.core.errors import StoreError
from dubio.core.predictions import Predictions
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.metrics.quantities import extreme_rows
from dubio.reporting.example_rows import EXTREMES, MOST_EXAMPLES
from dubio.runner.examples import content_of, shown_splits, store_examples, thumbnail
from dubio.store import Store

ROWS = 900


def split_of(name: str, kind: Any, seed: int, inputs: Any = None, severity: int | None = None) -> Split:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (ROWS, 6, 6, 3), dtype=np.uint8) if inputs is None else inputs
    labels = np.full(ROWS, -1) if kind == "ood" else (np.arange(ROWS) % 100 == 0).astype(np.int64)
    family = None if severity is None else name.rpartition("-")[0]
    return Split.of(name, kind, Examples(images, labels), family=family, severity=severity)


def task_of(*splits: Split, inputs: Any = "image", features: tuple[str, ...] = ()) -> Task:
    card = SourceCard("", "", "", "")
    return Task("eyes", inputs, "multiclass", ("no", "yes"), splits, card, features=features)


def predicted(name: str) -> Predictions:
    generator = np.random.default_rng(len(name))
    logits = np.stack([np.zeros(ROWS), generator.normal(0, 2, ROWS)], axis=-1)[None].astype(np.float32)
    unlabelled = name == "new"
    labels = np.full(ROWS, -1) if unlabelled else (np.arange(ROWS) % 100 == 0).astype(np.int64)
    return Predictions(logits, labels, ood=np.full(ROWS, unlabelled))


def stored_by(task: Task, path: Any, completed: tuple[str, ...] = ("one",)) -> dict[str, dict[int, Any]]:
    """The examples of every split after runs of two methods, of which the second cannot be read."""
    item = SimpleNamespace(task=task, name=task.name, entry=SimpleNamespace(network="cnn"))
    runs = [{"task": "eyes", "network": "cnn", "method": method, "id": identifier}
            for method, identifier in (("a", "one"), ("a", "second"), ("b", "lost"))]  # fmt: skip

    def read(identifier: str, name: str, fingerprint: str) -> Predictions:
        if identifier != "one":
            raise StoreError(f"{identifier} is lost.")
        return predicted(name)

    with Store.open(path) as store:
        store.read_predictions = read  # type: ignore[method-assign]
        store_examples(store, [item], runs, completed)  # type: ignore[list-item]
        return {split.name: store.read_examples(split.fingerprint) for split in task.splits}


def test_extremes_of_first_runs_and_all_labels_are_stored_within_the_bound(tmp_path) -> None:
    task = task_of(*(split_of(name, kind, k) for k, (name, kind) in enumerate(
        [("train", "train"), ("val", "val"), ("test", "id"), ("far", "shift"), ("new", "ood")])))  # fmt: skip
    stored = stored_by(task, tmp_path / "store")
    assert stored["train"] == stored["val"] == {}
    for name in ("test", "far"):
        assert len(stored[name]) == MOST_EXAMPLES
        assert set(extreme_rows(predicted(name), count=EXTREMES).rows.tolist()) <= stored[name].keys()
        # one row in a hundred has the label 1; all nine are there, because labels share the sample equally
        assert set(range(0, ROWS, 100)) <= stored[name].keys()
    doubts = predicted("new").probs.max(axis=1)
    assert set(np.argsort(-doubts)[:EXTREMES].tolist()) <= stored["new"].keys()
    row = next(iter(stored["test"]))
    assert stored["test"][row] == thumbnail(np.asarray(task.split("test").data.inputs)[row])


def test_the_same_split_has_the_same_sample_in_every_store(tmp_path) -> None:
    task = task_of(split_of("test", "id", 3))
    assert stored_by(task, tmp_path / "a")["test"].keys() == stored_by(task, tmp_path / "b")["test"].keys()
    other = task_of(split_of("test", "id", 4))
    assert stored_by(other, tmp_path / "c")["test"].keys() != stored_by(task, tmp_path / "a")["test"].keys()


def test_a_run_that_made_nothing_new_reads_no_prediction(tmp_path, monkeypatch) -> None:
    task = task_of(split_of("test", "id", 3))
    first = stored_by(task, tmp_path / "store")
    monkeypatch.setattr("dubio.runner.examples.rows_to_store", lambda *read: pytest.fail("read again"))
    assert stored_by(task, tmp_path / "store", completed=()) == first


def test_of_a_corruption_the_worst_severity_is_shown_and_of_many_corruptions_none() -> None:
    def names(*families: str) -> list[str]:
        levels = [split_of(f"{family}-{level}", "shift", level, severity=level) for family in families
                  for level in (2, 1, 3)]  # fmt: skip
        task = task_of(split_of("test", "id", 0), split_of("test-2", "id", 9), split_of("far", "shift", 1), *levels)
        return [split.name for split in shown_splits(task)]

    assert names("fog", "snow") == ["test", "far", "fog-3", "snow-3"]
    assert names("fog", "snow", "blur", "noise") == ["test", "far"]


def test_texts_and_table_rows_are_stored_as_a_reader_sees_them() -> None:
    texts = tuple(f"text {row}\x00\x1b \ud800" for row in range(ROWS))
    task = task_of(split_of("test", "id", 0, texts), inputs="text")
    assert content_of(task, task.splits[0], 7) == "text 7\ufffd\ufffd \ufffd"
    numbers = np.array([[k, np.nan, 0.1234567] for k in range(ROWS)])
    named = task_of(split_of("test", "id", 0, numbers), inputs="table", features=("age", "dose", "share"))
    assert content_of(named, named.splits[0], 5) == {"age": "5", "dose": "nan", "share": "0.123457"}
    bare = task_of(split_of("test", "id", 0, numbers), inputs="table")
    assert list(content_of(bare, bare.splits[0], 5)) == ["x0", "x1", "x2"]


def test_without_examples_nothing_of_the_data_is_on_disk(fake_world, benchmark) -> None:
    prepared = fake_world.prepared(benchmark("plain", seeds=(0,)))
    with Store.open(fake_world.path / "none") as store:
        outcome = prepared.run(store, examples=False)
        assert not store.layout.examples.exists()
    assert outcome.manifest["examples"] is False
    with Store.open(fake_world.path / "some") as store:
        manifest = prepared.run(store).manifest
        split = prepared.tasks[0].task.of_kind("id")[0]
        assert store.read_examples(split.fingerprint)
    assert "examples" not in manifest


def decoded(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_thumbnail_is_read_back_as_it_was(channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    assert (decoded(thumbnail(image)).reshape(image.shape) == image).all()
    assert thumbnail(image) == thumbnail(image)


def test_a_small_copy_averages_blocks() -> None:
    image = np.random.default_rng(0).integers(0, 256, (130, 90, 3), dtype=np.uint8)
    small = decoded(thumbnail(image))
    assert small.shape == (44, 30, 3)
    assert small[2, 1] == pytest.approx(image[6:9, 3:6].mean(axis=(0, 1)), abs=0.51)
    assert (decoded(thumbnail(image[:64, :64])) == image[:64, :64]).all()


def test_a_very_long_image_keeps_a_pixel() -> None:
    small = decoded(thumbnail(np.full((2, 1000, 3), 7, dtype=np.uint8)))
    assert small.shape == (1, 63, 3)
    assert (small == 7).all()
