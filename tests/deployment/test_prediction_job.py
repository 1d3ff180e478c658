from __future__ import annotations

import csv
import errno
import os
import tracemalloc

import numpy as np
import pytest

from dubio.core.errors import StoreError, UserError
from dubio.core.predictions import Predictions
from dubio.deployment import row_files
from dubio.deployment.model import TOLERANCE, Model
from dubio.deployment.prediction_job import PredictionJob, _write_csv
from dubio.deployment.row_files import RowFile
from dubio.formats import read_predictions
from dubio.referral import apply_policy, fit_capacity_policy
from tests.deployment.helpers import FORMS, TASKS, fitted_model


@pytest.fixture(scope="module")
def model():
    return fitted_model("mc-dropout", TASKS["table"](), epochs=1, samples=3)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A CSV of 100 rows, predicted in chunks of 16."""
    monkeypatch.setattr(row_files, "CHUNK", 16)
    values = np.random.default_rng(5).normal(size=(100, 4))
    path = tmp_path / "new.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*FORMS["table"].columns, "extra"])
        writer.writerows([*map(repr, row.tolist()), "x"] for row in values)
    return path, values


def job(model, path, output, **options):
    return PredictionJob(model, RowFile(path, model.form, model.classes, model.target), output, **options)


@pytest.mark.parametrize(
    ("name", "all_samples", "values"),
    [
        ("p.safetensors", True, None), ("p.safetensors", False, None), ("p.npz", False, None),
        ("p.csv", False, "probs"), ("p.csv", True, "logits"), ("p.parquet", False, "probs"),
        ("p.parquet", True, "logits"),
    ],
)  # fmt: skip
def test_a_file_of_predictions_is_what_the_model_predicts(model, rows, tmp_path, name, all_samples, values):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path, numbers = rows
    work = job(model, path, tmp_path / name, all_samples=all_samples)
    work.run()
    work.finish()
    written = read_predictions(tmp_path / name, values=values)
    expected = model.predictions(numbers)
    np.testing.assert_allclose(written.probs, expected.probs, atol=TOLERANCE, rtol=0)
    assert written.samples == (3 if all_samples else 1)
    assert written.classes == model.classes
    assert written.ids.tolist() == [str(row) for row in range(2, 102)]  # as a spreadsheet counts them
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(["new.csv", name])
    if name == "p.safetensors":
        assert written.system == model.identity


def test_an_interrupted_prediction_continues_where_it_stopped(model, rows, tmp_path, monkeypatch):
    path, numbers = rows
    output = tmp_path / "p.safetensors"

    def interrupt(count):
        if count > 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job(model, path, output, all_samples=True, progress=interrupt).run()
    assert not output.exists()
    finished = sorted((tmp_path / "p.safetensors.parts").glob("*.safetensors"))
    assert len(finished) == 4
    finished[1].write_bytes(finished[1].read_bytes()[:-3])  # as a failing disk may leave it
    predicted = []
    of_examples = Model.of_examples

    def counting(self, examples, notes=()):
        return predicted.append(len(examples)) or of_examples(self, examples, notes)

    monkeypatch.setattr(Model, "of_examples", counting)
    work = job(model, path, output, all_samples=True)
    predictions, _ = work.run()
    assert predicted == [16, 16, 16, 4]  # the damaged chunk, and those that were not made
    monkeypatch.undo()
    np.testing.assert_allclose(predictions.probs, model.predict_proba(numbers), atol=TOLERANCE, rtol=0)
    work.finish()
    assert not work.parts.exists()


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.npz", "p.safetensors"])
def test_own_scores_are_written_and_read_back(rows, tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path, _ = rows
    scored = fitted_model("posthoc", TASKS["table"](), epochs=1)
    predictions, _ = job(scored, path, tmp_path / name).run()
    again = read_predictions(tmp_path / name, values="probs" if name in ("p.csv", "p.parquet") else None)
    assert sorted(again.scores) == sorted(predictions.scores) != []
    for score, values in predictions.scores.items():
        np.testing.assert_allclose(again.scores[score], values, rtol=1e-8)


def test_other_rows_or_another_model_start_anew(model, rows, tmp_path):
    path, _ = rows
    output = tmp_path / "p.csv"
    job(model, path, output).run()
    other = fitted_model("mc-dropout", TASKS["table"](), epochs=1, samples=2)
    predictions, _ = job(other, path, output).run()
    assert (predictions.samples, predictions.system) == (2, other.identity)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"height": 1, "width": 2, "age": 3, "dose": 4, "kind": [null]}\n', ["line 1", "'kind'", "0 labels"]),
        ('{"height": 1, "width": 2, "age": 3, "dose": 4, "kind": ["a", "b"]}\n', ["line 1", "'kind'", "2 labels"]),
        ("height,width,age\n1,2,3\n", ["dose", "new.csv"]),
        ("height,width,age,dose\n1,2,3,4\n1,2,three,4\n", ["row 3", "'age'", "three"]),
        ("height,width,age,dose,kind\n1,2,3,4,a\n1,2,3,4,d\n", ["row 3", "'kind'", "'d'", "a, b, c"]),
        ("height,width,age,dose\n", ["no rows"]),
        ("height,width,age,dose,name\n1,2,3,4,r1\n1,2,3,4,r2\n1,2,3,4,r1\n", ["row 4", "id 'r1'", "unique"]),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(model, tmp_path, monkeypatch, content, words):
    from dataclasses import replace

    monkeypatch.setattr(row_files, "CHUNK", 2)
    path = tmp_path / ("new.jsonl" if content.startswith("{") else "new.csv")
    path.write_text(content)
    source = RowFile(path, replace(model.form, label="kind", id="name"), model.classes, model.target)
    with pytest.raises(UserError) as refusal:
        PredictionJob(model, source, tmp_path / "p.csv").run()
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_labels_of_an_npz_file_that_are_not_one_for_each_row_are_none(model, tmp_path):
    np.savez(tmp_path / "new.npz", x=np.zeros((2, 4)), y=np.array("a"))
    predictions, _ = job(model, tmp_path / "new.npz", tmp_path / "p.csv").run()
    assert (predictions.labels == -1).all()


def test_an_npz_file_of_no_rows_is_refused_like_a_table_of_none(model, tmp_path):
    np.savez(tmp_path / "new.npz", x=np.zeros((0, 4)))
    with pytest.raises(UserError, match=r"new\.npz.* has no rows"):
        job(model, tmp_path / "new.npz", tmp_path / "p.csv").run()
    assert [item.name for item in tmp_path.iterdir()] == ["new.npz"]


def test_a_full_disk_is_not_blamed_on_the_rows_and_finished_chunks_stay(model, rows, tmp_path, monkeypatch):
    from dubio.deployment import prediction_job

    path, _ = rows
    write = prediction_job.write_predictions

    def fill(target, predictions):
        if target.name == "000002.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, predictions)

    monkeypatch.setattr(prediction_job, "write_predictions", fill)
    work = job(model, path, tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"cannot write .*000002"):
        work.run()
    assert len(list(work.parts.glob("*.safetensors"))) == 2


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_a_file_of_which_some_rows_have_labels_has_one_column_of_them(model, tmp_path, name, monkeypatch):
    from dataclasses import replace

    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / "new.csv"
    lines = [f"{row % 7},2,3,4,{'b' if 4096 <= row < 4200 else ''}\n" for row in range(8300)]
    path.write_text("height,width,age,dose,kind\n" + "".join(lines))
    source = RowFile(path, replace(model.form, label="kind"), model.classes, model.target)
    PredictionJob(model, source, tmp_path / name).run()
    written = read_predictions(tmp_path / name, values="probs")
    assert np.flatnonzero(written.labels == 1).tolist() == list(range(4096, 4200))
    assert (np.delete(written.labels, np.arange(4096, 4200)) == -1).all()


def test_unused_columns_and_empty_texts_of_all_chunks_are_noted(model, rows, tmp_path):
    predictions, _ = job(model, rows[0], tmp_path / "p.csv").run()
    assert predictions.notes == ("Columns that the model does not use: extra.",)
    texts = fitted_model("deterministic", TASKS["text"](), epochs=1)
    (tmp_path / "texts.csv").write_text("review,x\n" + "good film,1\n" * 20 + " ,2\n,3\n" + "bad,4\n" * 20 + ",5\n")
    predictions, _ = job(texts, tmp_path / "texts.csv", tmp_path / "t.csv").run()
    assert predictions.notes == ("Columns that the model does not use: x.", "Rows with an empty text: 3.")


def test_rows_with_missing_numbers_are_counted_with_their_columns(model, rows, tmp_path):
    """They were filled in without a word."""
    path, values = rows
    gaps = values.copy()
    gaps[[3, 40], 0], gaps[40, 2] = np.nan, np.nan
    path.write_text("\n".join(["height,width,age,dose", *(",".join(map(repr, row)) for row in gaps.tolist())]) + "\n")
    note = "Rows with a missing number: 2 (height 2, age 1); such a number is filled in as in training."
    assert job(model, path, tmp_path / "p.csv").run()[0].notes == (note,)
    assert model.predictions(gaps).notes == (note,)
    assert model.predictions(values).notes == ()


@pytest.mark.parametrize("rows", [4096, 32768])
def test_tables_and_decisions_are_written_in_memory_that_hardly_grows_with_rows(rows, tmp_path):
    predictions = random_predictions(rows)
    policy = fit_capacity_policy(random_predictions(200).with_checked(kind="cal"), capacity=0.3)
    applied = apply_policy(policy, predictions)
    peaks = []
    for write in (lambda sink: _write_csv(sink, predictions, False), lambda sink: [*map(sink.write, encoded(applied))]):
        tracemalloc.start()
        with (tmp_path / "table.csv").open("wb") as sink:
            write(sink)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 12e6


@pytest.mark.parametrize("name", ["p.npz", "p.safetensors"])
def test_a_row_more_takes_few_bytes_more_from_its_file_to_its_decision(model, tmp_path, monkeypatch, name):
    """The rows themselves are 16 bytes each here; with ids in a set and in joined arrays they took 328."""
    policy = fit_capacity_policy(model.predictions(np.zeros((40, 4))).with_checked(kind="cal"), capacity=0.3)
    stand_in = random_predictions(row_files.CHUNK, 3, model.classes)
    monkeypatch.setattr(Model, "of_examples", lambda _, rows, notes=(): stand_in.take(np.arange(len(rows))))

    def peak(rows):
        np.savez(tmp_path / "new.npz", x=np.zeros((rows, 4), np.float32))
        tracemalloc.start()
        predictions, _ = job(model, tmp_path / "new.npz", tmp_path / name).run()
        model.decided(predictions, policy)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(100)
    assert peak(33 * row_files.CHUNK) - peak(row_files.CHUNK) < 150 * 32 * row_files.CHUNK


@pytest.mark.parametrize("rows", [(0, 5000), (4998, 4999), (2047, 2048)])
def test_an_id_that_occurs_twice_is_refused_wherever_its_rows_are(rows):
    names = np.array([f"r{index}" for index in range(5001)])
    names[rows[1]] = names[rows[0]]
    ids = row_files.UniqueIds()

    def add(first):
        own = names[first : first + 256]
        ids.add(row_files.Chunk(None, [f"row {first + index}" for index in range(len(own))], own))

    starts = [*range(0, 5001, 256)]
    second = rows[1] // 256
    for start in starts[:second]:
        add(start)
    with pytest.raises(UserError, match=rf"row {rows[1]}: the id 'r{rows[0]}' is that of an earlier row too"):
        add(starts[second])


def random_predictions(rows, classes=20, names=None):
    rng = np.random.default_rng(rows)
    logits = rng.normal(size=(1, rows, classes)).astype(np.float32)
    labels = rng.integers(0, classes, rows)
    return Predictions(logits, labels, ids=np.arange(rows).astype(np.str_), classes=names)


def encoded(applied):
    return (line.encode() for line in applied.csv_lines())


def test_labels_ids_and_groups_come_from_the_columns_of_the_run(model, tmp_path):
    from dataclasses import replace

    path = tmp_path / "new.csv"
    path.write_text("height,width,age,dose,kind,name,patient\n1,2,3,4,b,r1,p\n1,2,3,,,r2,q\n")
    form = replace(model.form, label="kind", id="name", group="patient")
    work = PredictionJob(model, RowFile(path, form, model.classes, model.target), tmp_path / "p.safetensors", True)
    work.run()
    written = read_predictions(tmp_path / "p.safetensors")
    assert written.labels.tolist() == [1, -1]
    assert (written.ids.tolist(), written.group.tolist()) == (["r1", "r2"], ["p", "q"])


def test_a_folder_of_images_has_labels_where_folders_are_classes(tmp_path):
    image = pytest.importorskip("PIL.Image")
    model = fitted_model("deterministic", TASKS["image"](), epochs=1)
    pixels = np.random.default_rng(0).integers(0, 255, size=(3, 8, 8)).astype(np.uint8)
    for folder, array in zip(("dark", "light", "light"), pixels, strict=True):
        (tmp_path / "new" / folder).mkdir(parents=True, exist_ok=True)
        image.fromarray(array).save(tmp_path / "new" / folder / f"{array[0, 0]}.png")
    work = job(model, tmp_path / "new", tmp_path / "p.safetensors", all_samples=True)
    predictions, _ = work.run()
    assert predictions.labels.tolist() == [0, 1, 1]
    arrays = [np.asarray(image.open(tmp_path / "new" / name)) for name in predictions.ids]
    np.testing.assert_allclose(predictions.probs, model.predict_proba(arrays), atol=TOLERANCE, rtol=0)
    np.savez(tmp_path / "new.npz", x=np.stack(arrays), y=["dark", "light", "light"])
    from_npz, _ = job(model, tmp_path / "new.npz", tmp_path / "q.safetensors", all_samples=True).run()
    np.testing.assert_allclose(from_npz.probs, predictions.probs, atol=TOLERANCE, rtol=0)
    image.fromarray(np.zeros((9, 8), np.uint8)).save(tmp_path / "new" / "dark" / "large.png")
    with pytest.raises(UserError, match=r"dark/large.png.*9×8.*8×8"):
        job(model, tmp_path / "new", tmp_path / "r.safetensors").run()
    (tmp_path / "new" / "grey").mkdir()
    (tmp_path / "new" / "dark" / "large.png").rename(tmp_path / "new" / "grey" / "large.png")
    with pytest.raises(UserError, match="grey"):
        job(model, tmp_path / "new", tmp_path / "r.safetensors").run()


@pytest.mark.parametrize(("name", "words"), [("p.txt", "must end in"), ("p.npz", "--samples")])
def test_outputs_that_cannot_be_written_are_refused_before_anything_is_predicted(model, rows, tmp_path, name, words):
    with pytest.raises(UserError, match=words):
        job(model, rows[0], tmp_path / name, all_samples=True)


def test_room_for_joined_arrays_is_taken_before_they_are_mapped(model, rows, tmp_path, monkeypatch):
    """A map that is written on a full disk ends the process; a file that cannot be allocated is a sentence."""
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(full), raising=False)
    work = job(model, rows[0], tmp_path / "p.safetensors", all_samples=True)
    with pytest.raises(StoreError, match=r"cannot write .*logits\.array': the disk is full"):
        work.run()
    assert len([*work.parts.glob("*.safetensors")]) == 7  # finished chunks stay, for the same command
    monkeypatch.undo()
    monkeypatch.setattr(row_files, "CHUNK", 16)
    work.run()
    facts = (work.parts / "logits.array").stat()
    assert facts.st_blocks * 512 >= facts.st_size == 3 * 100 * 3 * 4


def test_a_damaged_chunk_that_cannot_be_removed_is_a_sentence(model, rows, tmp_path, monkeypatch):
    work = job(model, rows[0], tmp_path / "p.safetensors")
    work.run()
    (work.parts / "000000.safetensors").write_bytes(b"damaged")
    broken = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(type(tmp_path), "unlink", lambda *_, **__: (_ for _ in ()).throw(broken))
    with pytest.raises(UserError, match=r"cannot write .*: the disk reports an error"):
        work.run()


@pytest.mark.parametrize(("name", "values"), [("p.parquet", "probs"), ("p.parquet", "logits"), ("p.npz", None)])
def test_a_policy_of_a_written_file_is_bound_to_the_model_that_wrote_it(model, rows, tmp_path, name, values):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    work = job(model, rows[0], tmp_path / name, all_samples=values == "logits")
    work.run()
    work.finish()
    written = read_predictions(tmp_path / name, values=values)
    assert written.system == model.identity
    policy = fit_capacity_policy(written, capacity=0.3)
    assert policy.system == model.identity
    model.check_policy(policy)
    other = fitted_model("mc-dropout", TASKS["table"](), epochs=1, samples=3, seed=1)
    with pytest.raises(UserError, match="fitted for the model"):
        other.check_policy(policy)
