import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from dubio.core.errors import BadFile, UserError
from dubio.core.predictions import Predictions
from dubio.formats import read_predictions, read_tensors, write_predictions, write_tensors
from dubio.formats.arrays import BUILT_IN
from dubio.formats.predictions import read_verified
from dubio.metrics.quantities import QUANTITIES
from dubio.statistics.paired import align


def full(seed=0, target="multiclass"):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (6, 4)) if target == "multilabel" else rng.integers(-1, 4, 6)
    logits = rng.normal(size=(3, 6, 4)).astype(np.float32)
    logits[0, 0, 0] = -np.inf
    return Predictions(
        logits,
        labels,
        target,
        ood=rng.random(6) < 0.5,
        member=np.array([0, 0, 1]),
        data_variance=rng.random((3, 6, 4)).astype(np.float32),
        model_variance=rng.random((3, 6)).astype(np.float32),
        ids=np.array(["a", "", "ü", "日本", "e\n", "f"]),
        group=np.array(list("xxyyzz")),
        temperature=1.7,
        classes=("w", "x", "y", "zä"),
        kind="cal",
        features=rng.normal(size=(2, 6, 5)).astype(np.float16),
    )


FIELDS = ("logits", "labels", "ood", "member", "data_variance", "model_variance", "features", "ids", "group")


@pytest.mark.parametrize("target", ["multiclass", "multilabel", "ordinal"])
def test_our_own_file_gives_back_everything_memory_mapped(tmp_path, target):
    predictions, path = full(target=target), tmp_path / "x.safetensors"
    if target == "multilabel":
        predictions.logits[1, 2, 3] = np.inf
    write_predictions(path, predictions)
    found = read_predictions(path)
    for name in FIELDS:
        assert np.array_equal(getattr(found, name), getattr(predictions, name)), name
    assert (found.target, found.temperature, found.classes, found.kind) == (target, 1.7, predictions.classes, "cal")
    assert isinstance(found.logits.base, np.memmap) or isinstance(found.logits, np.memmap)
    bare = Predictions(predictions.logits, predictions.labels, target)
    write_predictions(path, bare)
    again = read_predictions(path)
    assert again.ids is None
    assert again.classes is None
    assert again.kind is None


def test_our_own_file_from_another_time_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write_predictions(path, full())
    tensors, metadata = read_tensors(path)
    tensors = {name: np.array(array) for name, array in tensors.items()}

    def rewritten(changed=metadata, **more):
        write_tensors(path, {**tensors, **more}, changed)
        return path

    with pytest.raises(BadFile, match="has schema 2; this dubio reads up to 1"):
        read_predictions(rewritten({**metadata, "schema": "2"}))
    for key, value in (
        ("target", "x"),
        ("temperature", "warm"),
        ("kind", "test"),
        ("classes", "[1]"),
        ("classes", "{"),
    ):
        with pytest.raises(BadFile):
            read_predictions(rewritten({**metadata, key: value}))
    with pytest.raises(UserError, match="temperature must be finite and at least"):
        read_predictions(rewritten({**metadata, "temperature": "nan"}))
    with pytest.raises(BadFile, match="texts 'ids' do not fit together"):
        read_predictions(rewritten(**{"ids.ends": tensors["ids.ends"][::-1].copy()}))
    with pytest.raises(UserError, match="ids must have shape"):
        read_predictions(rewritten(**{"ids.ends": tensors["ids.ends"][1:]}))
    with pytest.raises(UserError, match="holds logits in float32"):
        read_predictions(rewritten(logits=tensors["logits"].astype(np.float64)))
    with pytest.raises(UserError, match="says that it holds multiclass predictions, and target"):
        read_predictions(rewritten(), target="multilabel")
    assert read_predictions(rewritten(), target="ordinal").target == "ordinal"
    logits = tensors["logits"].copy()
    logits[0, 1, 2] = np.nan
    with pytest.raises(UserError, match=r"x\.safetensors': logits must not be NaN or \+inf; sample 0, row 1, column 2"):
        read_predictions(rewritten(logits=logits))


P = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]])


def test_arrays_from_every_array_format(tmp_path):
    labels = np.array([0, 1, 1])
    np.savez(tmp_path / "a.npz", probs=P, labels=labels, ids=np.array(["x", "y", "z"]), other=np.ones(9))
    save_file({"probs": P, "labels": labels}, tmp_path / "a.safetensors")
    np.save(tmp_path / "a.npy", P)
    np.save(tmp_path / "y.npy", labels)
    np.savez(tmp_path / "bare.npz", P)
    found = [
        read_predictions(tmp_path / "a.npz"),
        read_predictions(str(tmp_path / "a.safetensors")),
        read_predictions(tmp_path / "a.npy", values="probs", labels=tmp_path / "y.npy"),
        read_predictions(tmp_path / "bare.npz", values="probs", labels=labels),
    ]
    for predictions in found:
        assert predictions.probs == pytest.approx(P)
        assert predictions.labels.tolist() == [0, 1, 1]
    assert found[0].ids.tolist() == ["x", "y", "z"]


def test_refusals_name_the_file(tmp_path):
    np.save(tmp_path / "a.npy", P)
    with pytest.raises(UserError, match=r"a\.npy': say what the array"):
        read_predictions(tmp_path / "a.npy")
    with pytest.raises(BadFile, match="no such file"):
        read_predictions(tmp_path / "none.npz")
    with pytest.raises(BadFile, match=r"files ending in \.safetensors"):
        read_predictions(tmp_path / "a.pkl")
    np.savez(tmp_path / "g.npz", probs=P, groups=np.arange(3))
    with pytest.raises(UserError, match="did you mean 'group'"):
        read_predictions(tmp_path / "g.npz")
    with pytest.raises(UserError, match="in_domain is for a table"):
        read_predictions(tmp_path / "g.npz", in_domain="x")
    with pytest.raises(BadFile, match="has no array labels"):
        read_predictions(tmp_path / "a.npy", values="probs", labels=tmp_path / "g.npz")
    with pytest.raises(BadFile, match="labels are read from"):
        read_predictions(tmp_path / "a.npy", values="probs", labels=tmp_path / "y.txt")


def test_systems_are_aligned_by_ids_or_refused():
    one = replace(full(), ids=np.array(list("abcdef")))
    order = np.array([5, 3, 1, 0, 2, 4])
    turned = align({"one": one, "two": one.take(order)})
    assert turned["two"].ids.tolist() == list("abcdef")
    assert np.array_equal(turned["two"].logits, one.logits)
    without = replace(one, ids=None)
    with pytest.raises(
        UserError, match=r"systems 'one' and 'two' cannot be compared: labels differ, first in row .* Give ids"
    ):
        align({"one": without, "two": without.take(order)})
    with pytest.raises(UserError, match="one has 6 rows and the other 5"):
        align({"one": one, "two": one.take(order[:5])})
    with pytest.raises(UserError, match="id 'f' is in one and not in the other"):
        align({"one": one, "two": replace(one, ids=np.array(list("abcdeg")))})
    with pytest.raises(UserError, match="name different classes"):
        align({"one": one, "two": replace(one, classes=("x", "w", "y", "zä"))})
    with pytest.raises(UserError, match="the target is multiclass in one and ordinal"):
        align({"one": one, "two": replace(one, target="ordinal")})
    with pytest.raises(UserError, match="no system"):
        align({})


def test_metadata_are_documented_names(tmp_path):
    write_predictions(tmp_path / "x.safetensors", full())
    tensors, metadata = read_tensors(tmp_path / "x.safetensors")
    assert metadata == {
        "dubio": "predictions", "schema": "1", "target": "multiclass", "temperature": "1.7", "kind": "cal",
        "classes": json.dumps(["w", "x", "y", "zä"]),
    }  # fmt: skip
    texts = {"ids.utf8", "ids.ends", "group.utf8", "group.ends"}
    assert set(tensors) == {*FIELDS} - {"ids", "group"} | texts


def test_columns_and_scores_come_back_and_files_without_them_stay_as_they_were(tmp_path):
    plain = full()
    more = replace(
        plain,
        columns={"site": np.array(["a", "ü", "", "b", "b", "b"])},
        scores={"distance": np.arange(6) / 3, "energy": -np.arange(6.0)},
    )
    write_predictions(tmp_path / "plain.safetensors", plain)
    write_predictions(tmp_path / "more.safetensors", more)
    found = read_predictions(tmp_path / "more.safetensors")
    assert found.columns["site"].tolist() == more.columns["site"].tolist()
    assert {name: score.tolist() for name, score in found.scores.items()} == {
        name: score.tolist() for name, score in more.scores.items()
    }
    tensors, _ = read_tensors(tmp_path / "plain.safetensors")
    assert set(tensors) == {*FIELDS[:-2], "ids.utf8", "ids.ends", "group.utf8", "group.ends"}


def test_columns_and_scores_from_arrays_and_tables(tmp_path):
    probs = np.array([[0.7, 0.3], [0.2, 0.8]])
    np.savez(tmp_path / "a.npz", probs=probs, **{"score.u": np.array([1, 2]), "column.site": np.array(["x", "y"])})
    (tmp_path / "a.csv").write_text("p0,p1,score.u,column.site\n0.7,0.3,1,x\n0.2,0.8,2,y\n")
    (tmp_path / "b.csv").write_text("cat,dog,score.u,column.site\n0.7,0.3,1,x\n0.2,0.8,2,y\n")
    for name in ("a.npz", "a.csv", "b.csv"):
        found = read_predictions(tmp_path / name, values="probs")
        assert found.scores["u"].tolist() == [1.0, 2.0]
        assert found.columns["site"].tolist() == ["x", "y"]
        assert found.class_count == 2
    (tmp_path / "c.csv").write_text("p0,p1,score.u\n0.7,0.3,a\n")
    with pytest.raises(UserError, match=r"row 2.*'score\.u' must be a number"):
        read_predictions(tmp_path / "c.csv")


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_a_verified_file_reads_the_same_without_checks(tmp_path, target):
    path = tmp_path / "x.safetensors"
    predictions = replace(full(target=target), columns={"site": np.array(list("aabbcc"))}, scores={"u": np.arange(6.0)})
    write_predictions(path, predictions)
    one, other = read_predictions(path), read_verified(path)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("target", "temperature", "classes", "kind"):
        assert getattr(one, name) == getattr(other, name)
    assert other.columns["site"].tolist() == list("aabbcc")
    assert other.scores["u"].tolist() == list(range(6))
    np.testing.assert_array_equal(one.probs, other.probs)
    write_tensors(path, {"logits": np.zeros((1, 2, 3), np.float32)}, {})
    with pytest.raises(BadFile):
        read_verified(path)


def test_pooled_probabilities_are_written_as_npz_and_read_again(tmp_path):
    predictions = full()
    write_predictions(tmp_path / "x.npz", predictions)
    again = read_predictions(tmp_path / "x.npz", target=predictions.target)
    assert again.samples == 1
    assert np.allclose(again.probs, predictions.probs, atol=1e-6)
    assert np.array_equal(again.labels, predictions.labels)


@pytest.mark.parametrize("name", QUANTITIES)
def test_an_own_score_with_the_name_of_a_built_in_one_is_refused_on_reading(tmp_path, name):
    """The built-in one was used in its place, without a word."""
    assert set(BUILT_IN) == set(QUANTITIES)
    np.savez(tmp_path / "a.npz", probs=np.array([[0.7, 0.3]]), **{f"score.{name}": np.array([1.0])})
    (tmp_path / "a.csv").write_text(f"p0,p1,score.{name}\n0.7,0.3,1\n")
    for file, kind in (("a.npz", "array"), ("a.csv", "column")):
        with pytest.raises(UserError, match=rf"{file}.*{kind} 'score\.{name}' .*rename .*'score\.own_{name}'"):
            read_predictions(tmp_path / file)
    (tmp_path / "b.csv").write_text(f"p0,p1,score.own_{name}\n0.7,0.3,1\n")
    assert list(read_predictions(tmp_path / "b.csv").scores) == [f"own_{name}"]


def write_rows(path, names, rows):
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")
    return path


@pytest.fixture
def four(tmp_path):
    """Four rows with ids, in an array file, a table, and a table of two samples per row; all answers are right."""
    right, probs = {"a": 0, "b": 1, "c": 1, "d": 0}, np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.8, 0.2]])
    np.savez(tmp_path / "p.npz", probs=probs, ids=np.array(list(right)))
    rows = [(name, *row) for name, row in zip(right, probs, strict=True)]
    write_rows(tmp_path / "p.csv", "id,p0,p1", rows)
    write_rows(tmp_path / "samples.csv", "sample,id,p0,p1", [(sample, *row) for sample in (0, 1) for row in rows])
    return right


@pytest.mark.parametrize("name", ["p.npz", "p.csv", "samples.csv"])
def test_labels_of_a_file_of_their_own_belong_to_the_rows_of_their_ids(tmp_path, four, name):
    """An annotator's sheet has an order of its own; by position, all four of these labels would be wrong."""
    sheet = [(key, four[key]) for key in "bdac"]
    files = [write_rows(tmp_path / "y.csv", "id,label", sheet), tmp_path / "y.npz"]
    np.savez(files[1], labels=[label for _, label in sheet], ids=np.array(list("bdac")))
    for file in files:
        predictions = read_predictions(tmp_path / name, labels=file)
        assert predictions.labels.tolist() == list(four.values())
        assert predictions.probs.argmax(1).tolist() == predictions.labels.tolist()
        assert not predictions.notes
    named = write_rows(tmp_path / "z.csv", "label", [(label,) for label in four.values()])
    assert read_predictions(tmp_path / name, labels=named).labels.tolist() == list(four.values())


def test_labels_of_a_file_of_their_own_are_complete_and_what_is_spare_is_named(tmp_path, four):
    rows = list(four.items())
    more = write_rows(tmp_path / "more.csv", "id,label", [("e", 1), *rows])
    predictions = read_predictions(tmp_path / "p.csv", labels=more)
    assert predictions.labels.tolist() == list(four.values())
    assert predictions.notes == (f"{str(more)!r}: the predictions have no rows for 1 label (first: id 'e').",)
    fewer = write_rows(tmp_path / "fewer.csv", "id,label", rows[1:])
    with pytest.raises(
        UserError, match=r"fewer.csv' has no label for 1 of 4 rows of the predictions \(first: id 'a'\)"
    ):
        read_predictions(tmp_path / "p.npz", labels=fewer)
    unknown = write_rows(tmp_path / "unknown.csv", "id,label", [("a", ""), *rows[1:]])
    assert read_predictions(tmp_path / "p.npz", labels=unknown).labels.tolist() == [-1, 1, 1, 0]
    twice = write_rows(tmp_path / "twice.csv", "id,label", [*rows, rows[0]])
    with pytest.raises(UserError, match="ids must be unique; 'a'"):
        read_predictions(tmp_path / "p.npz", labels=twice)
    np.savez(tmp_path / "long.npz", labels=[0, 1, 1, 0], ids=np.array(list("abcde")))
    with pytest.raises(UserError, match=r"long.npz': ids must have shape \(4,\); given \(5,\)"):
        read_predictions(tmp_path / "p.npz", labels=tmp_path / "long.npz")
    other = write_rows(tmp_path / "other.csv", "id,lable", rows)
    refusal = r"no column label\. Did you mean 'lable'\? Call it 'label'\. Its columns: id, lable"
    with pytest.raises(BadFile, match=refusal):
        read_predictions(tmp_path / "p.npz", labels=other)


def test_ids_of_labels_are_named_where_the_predictions_have_none(tmp_path, four):
    np.savez(tmp_path / "bare.npz", probs=np.full((4, 2), 0.5))
    sheet = write_rows(tmp_path / "y.csv", "image,label", four.items())
    assert not read_predictions(tmp_path / "bare.npz", labels=sheet).notes
    sheet = write_rows(tmp_path / "y.csv", "id,label", four.items())
    predictions = read_predictions(tmp_path / "bare.npz", labels=sheet)
    assert predictions.labels.tolist() == list(four.values())
    assert "because the predictions have none: its labels are taken in the order of the rows" in predictions.notes[0]


def test_the_column_of_ids_that_is_named_is_that_of_the_labels_too(tmp_path, four):
    predicted = write_rows(tmp_path / "q.csv", "image,p0,p1", [(key, 1 - label, label) for key, label in four.items()])
    sheet = write_rows(tmp_path / "y.csv", "image,label", [(key, four[key]) for key in "bdac"])
    assert read_predictions(predicted, labels=sheet, ids="image").labels.tolist() == list(four.values())


def test_a_double_id_of_a_table_is_named_by_the_rows_that_a_spreadsheet_shows(tmp_path):
    path = write_rows(tmp_path / "p.csv", "id,p0,p1", [("a", 1, 0), ("b", 1, 0), ("a", 0, 1)])
    with pytest.raises(UserError, match="ids must be unique; 'a' is in row 2 and row 4"):
        read_predictions(path)


def test_a_label_that_is_no_class_is_refused_with_the_classes(tmp_path):
    path = write_rows(tmp_path / "p.csv", "label,cat,dog", [("bird", 1, 0), ("dog", 1, 0)])
    with pytest.raises(UserError, match=r"row 2, column 'label' is 'bird', which is not a class\. Classes: cat, dog"):
        read_predictions(path, values="probs")


def test_a_label_of_a_file_that_is_no_class_is_named_by_the_id_of_its_row(tmp_path):
    """The row of the predictions is not that of the file, which has an order of its own."""
    np.savez(tmp_path / "p.npz", probs=np.full((2, 2), 0.5), ids=np.array(["a", "b"]), classes=np.array(["cat", "dog"]))
    sheet = write_rows(tmp_path / "y.csv", "id,label", [("b", "dgo"), ("a", "cat")])
    with pytest.raises(UserError, match=r"labels: that of id 'b' is 'dgo', which is not a class; nearest: 'dog'"):
        read_predictions(tmp_path / "p.npz", labels=sheet)
