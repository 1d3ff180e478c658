"""Predictions in tables: a row an example or a row a sample, by number or by name, whole or refused."""

import builtins

import numpy as np
import pandas as pd
import pytest

from dubio.core.errors import BadFile, MissingExtra, UserError
from dubio.formats import read_predictions

P = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]])


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
    with pytest.raises(UserError, match=r"row 3, column 'label' is 'dgo', .*nearest: 'dog'"):
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
        ("id,sample,p0,p1\na,0,1,0\na,0,1,0\n", "row 2 and row 3 are the same sample of id 'a'"),
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
    with pytest.raises(UserError, match="row 2, column 'p0' must be a number, and is missing"):
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
        ("", "has no rows: its first line must name the columns"),
        ("p0,p1\n", "has no rows"),
        ("p0,p1\n0.5,0.5,1\n", "line 2 has 3 fields, the header has 2"),
        ("p0,p0\n1,0\n", "names the column 'p0' twice"),
        ("p0,\n1,0\n", "column 1 .from 0. has no name"),
        ("p0,p2\n1,0\n", "column 'p1' is missing"),
        ("p0,p1\n1,x\n", "row 2, column 'p1' must be a number; given 'x'"),
        ("p0,p1\n1,\n", "row 2, column 'p1' must be a number, and is missing"),
        ("p0,p1\n1,nan\n", "row 2, column 'p1' must be a number, and is missing"),
        ("p0,p1\n1,1.5\n", r"between 0 and 1; row 2, column 1 is 1.5 \(columns count from 0\)"),
        ("p0,p1\n0.5,0.5\n0.5,0.4\n", "row 3 sums to 0.9"),
        ("p0,p1,label\n1,0,2\n", "column 'label' must lie between 0 and 1; given 2"),
        ("p0,p1,label\n1,0,a\n", "must be the number of a class; given 'a'"),
        ("p0,p1,label\n1,0,0.5\n", "must be the number of a class; given '0.5'"),
        ("p0,p1,lable\n1,0,1\n", "column 'lable' is not known; did you mean 'label'"),
        ("p0,p1\n0.9,0.9\n", "row 2 sums to 1.8. For several labels per row say .*--target multilabel"),
        ("p0,p1,id\n1,0,a\n1,0,a\n", "ids must be unique"),
        ("p0,p1,id\n1,0,\n", "column 'id' is empty"),
        ("p0,p1,logit0,logit1\n1,0,1,0\n", "logits and probs; say which"),
        ("p0,p1,ood\n1,0,maybe\n", "column 'ood' must be true or false; given 'maybe'"),
        ("p0,p1,ids\n1,0,a\n", "did you mean 'id'"),
        ('p0,p1\n"1,0\n', "line 2 is not CSV: unexpected end of data. Is a quote unclosed"),
    ],
)
def test_tables_that_cannot_be_read_say_where(tmp_path, text, words):
    with pytest.raises(UserError, match=words):
        read_predictions(table(tmp_path / "a.csv", text))


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("p0,p1,id\n1,0,é\n".encode("latin-1"))
    with pytest.raises(BadFile, match="not UTF-8: byte 0xe9 in line 2"):
        read_predictions(tmp_path / "a.csv")


def test_labels_may_be_written_as_decimals(tmp_path):
    path = table(tmp_path / "a.csv", "p0,p1,label\n1,0,1.0\n1,0,\n1,0,0.0\n")  # as pandas writes a column with gaps
    assert read_predictions(path).labels.tolist() == [1, -1, 0]


def test_a_column_of_numbers_that_is_no_class_is_named(tmp_path):
    path = table(tmp_path / "a.csv", "well,sick,age\n0.9,0.1,61\n0.2,0.8,54\n")
    with pytest.raises(UserError, match=r"Read as classes: well, sick, age; call a column that is none 'column.NAME'"):
        read_predictions(path, values="probs")
