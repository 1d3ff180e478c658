import builtins
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from dubio.errors import BadFile, MissingExtra, UserError
from dubio.formats import align, read_predictions, read_tensors, write_predictions, write_tensors
from dubio.types import Predictions


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
    )


FIELDS = ("logits", "labels", "ood", "member", "data_variance", "model_variance", "ids", "group")


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
    with pytest.raises(UserError, match="temperature must be positive"):
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


def table(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_row_an_example_with_numbered_columns(tmp_path):
    path = table(
        tmp_path / "a.csv", 'id,label,p1,p0,group,text\nx,0,0.3,0.7,g,hello\ny,1,0.8,0.2,g,"a, b"\nz,,0.5,0.5,h,\n'
    )
    found = read_predictions(path)
    assert found.probs == pytest.approx(P)
    assert found.labels.tolist() == [0, 1, -1]
    assert found.ids.tolist() == ["x", "y", "z"]
    assert found.group.tolist() == ["g", "g", "h"]
    tabbed = table(tmp_path / "a.tsv", "\ufefflogit\tood\n0\tfalse\n3\tTrue\n")
    found = read_predictions(tabbed)
    assert found.probs[:, 1] == pytest.approx(1 / (1 + np.exp([0.0, -3.0])))
    assert found.ood.tolist() == [False, True]


def test_columns_named_after_classes_and_labels_by_name(tmp_path):
    path = table(tmp_path / "a.csv", "cat,dog,label\n0.7,0.3,cat\n0.2,0.8,dog\n0.5,0.5,\n")
    with pytest.raises(UserError, match="for columns named after classes, say what"):
        read_predictions(path)
    found = read_predictions(path, values="probs")
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 1, -1]
    labels = table(tmp_path / "y.csv", "label\ndog\ncat\ndog\n")
    bare = table(tmp_path / "b.csv", "cat,dog\n0.7,0.3\n0.2,0.8\n0.5,0.5\n")
    assert read_predictions(bare, values="probs", labels=labels).labels.tolist() == [1, 0, 1]
    wrong = table(tmp_path / "c.csv", "cat,dog,label\n0.7,0.3,cat\n0.2,0.8,dgo\n")
    with pytest.raises(UserError, match=r"row 1 .from 0., column 'label' is 'dgo', which is no class; nearest: 'dog'"):
        read_predictions(wrong, values="probs")
    with pytest.raises(UserError, match="'labels' is not known; did you mean 'label'"):
        read_predictions(table(tmp_path / "d.csv", "cat,dog,labels\n0.7,0.3,0\n"), values="probs")


def test_a_row_a_sample(tmp_path):
    rows = ["id,member,sample,p0,p1,label"]
    for member in (10, 9):
        for sample in (0, 1):
            rows += [f"{name},{member},{sample},{0.1 * member / 2},{1 - 0.1 * member / 2},1" for name in "ab"]
    found = read_predictions(table(tmp_path / "a.csv", "\n".join(rows)))
    assert found.logits.shape == (4, 2, 2)
    assert found.member.tolist() == [0, 0, 1, 1]
    assert np.exp(found.logits[0, 0]) == pytest.approx([0.45, 0.55])
    assert found.probs == pytest.approx(np.tile([0.475, 0.525], (2, 1)))
    for text, words in [
        ("id,sample,p0,p1\na,0,1,0\na,0,1,0\n", "rows 0 and 1 .from 0. are the same sample of id 'a'"),
        ("id,sample,p0,p1\na,0,1,0\nb,0,1,0\na,1,1,0\n", "id 'b' has no row for sample 1"),
        ("sample,p0,p1\n0,1,0\n", "needs a column 'id'"),
        ("id,sample,p0,p1,label\na,0,1,0,0\na,1,1,0,1\n", "column 'label' differs between the samples"),
        ("id,sample,p\na,0,1\na,1,1\n", "give both classes as columns"),
    ]:
        with pytest.raises(UserError, match=words):
            read_predictions(table(tmp_path / "b.csv", text))


def test_several_labels_a_row(tmp_path):
    path = table(tmp_path / "a.csv", 'x,y,z,label\n0.7,0.3,0.9,x;z\n0.2,0.8,0.1,"[""y""]"\n0.5,0.5,0.5,\n')
    found = read_predictions(path, values="probs", target="multilabel")
    assert found.labels.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert found.probs[0] == pytest.approx([0.7, 0.3, 0.9])
    pd.DataFrame({"x": [0.7], "y": [0.2], "label": [["y", "x"]]}).to_parquet(tmp_path / "a.parquet")
    found = read_predictions(tmp_path / "a.parquet", values="probs", target="multilabel")
    assert found.labels.tolist() == [[1, 1]]


def test_parquet(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame(
        {"p0": P[:, 0], "p1": P[:, 1], "label": pd.array([0, None, 1], dtype="Int64"), "id": [7, 8, 9]}
    )
    frame.to_parquet(path)
    found = read_predictions(path)
    assert found.probs == pytest.approx(P)
    assert found.labels.tolist() == [0, -1, 1]
    assert found.ids.tolist() == ["7", "8", "9"]
    frame.assign(p0=[0.7, None, 0.5]).to_parquet(path)
    with pytest.raises(UserError, match="row 1"):
        read_predictions(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadFile, match="not a readable Parquet file"):
        read_predictions(path)
    imported = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        MissingExtra, match=r"reading Parquet needs an optional part of dubio: pip install 'dubio\[parquet\]'"
    ):
        read_predictions(path)


def test_domains(tmp_path):
    path = table(tmp_path / "a.csv", "p0,p1,domain\n1,0,imdb\n1,0,amazon\n1,0,imdb\n")
    with pytest.raises(UserError, match="several domains; say which one is in distribution"):
        read_predictions(path)
    assert read_predictions(path, in_domain="imdb").ood.tolist() == [False, True, False]
    with pytest.raises(UserError, match="no row has the domain 'books'; there are amazon, imdb"):
        read_predictions(path, in_domain="books")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("p0,p1\n", "has no rows"),
        ("p0,p1\n0.5,0.5,1\n", "line 2: 3 cells where the first line names 2"),
        ("p0,p0\n1,0\n", "names the column 'p0' twice"),
        ("p0,\n1,0\n", "column 1 .from 0. has no name"),
        ("p0,p2\n1,0\n", "column 'p1' is missing"),
        ("p0,p1\n1,x\n", "row 0 .from 0., column 'p1' must be a number; given 'x'"),
        ("p0,p1\n1,\n", "column 'p1' must be a number"),
        ("p0,p1\n1,nan\n", "between 0 and 1; row 0, column 1 is nan"),
        ("p0,p1\n0.5,0.5\n0.5,0.4\n", "row 1 sums to 0.9"),
        ("p0,p1,label\n1,0,2\n", "column 'label' must lie between 0 and 1; given 2"),
        ("p0,p1,label\n1,0,a\n", "must be the number of a class; given 'a'"),
        ("p0,p1,id\n1,0,a\n1,0,a\n", "ids must be unique"),
        ("p0,p1,id\n1,0,\n", "column 'id' is empty"),
        ("p0,p1,logit0,logit1\n1,0,1,0\n", "logits and probs; say which"),
        ("p0,p1,ood\n1,0,maybe\n", "column 'ood' must be true or false; given 'maybe'"),
        ("p0,p1,ids\n1,0,a\n", "did you mean 'id'"),
        ('p0,p1\n"1,0\n', "not a readable UTF-8 table"),
    ],
)
def test_tables_that_cannot_be_read_say_where(tmp_path, text, words):
    with pytest.raises(UserError, match=words):
        read_predictions(table(tmp_path / "a.csv", text))


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("p0,p1,id\n1,0,é\n".encode("latin-1"))
    with pytest.raises(BadFile, match="not a readable UTF-8 table"):
        read_predictions(tmp_path / "a.csv")


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
