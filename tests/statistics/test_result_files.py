"""Tables of results as people keep them: every layout gives the same ranks, and what is missing is named."""

import gzip
from fractions import Fraction

import pandas as pd
import pytest

import dubio
from dubio.core.errors import BadFile, UserError
from dubio.statistics.result_files import read_results
from dubio.statistics.result_table import Columns

VALUES = {"cifar": {"forest": 0.81, "network": 0.93}, "svhn": {"forest": 0.7, "network": 0.88}}
LONG = "dataset,method,metric,value\n" + "".join(
    f"{d},{m},accuracy,{v}\n" for d, own in VALUES.items() for m, v in own.items()
)


def means(table, metric="accuracy"):
    return {dataset: {m: float(v) for (d, m), v in table.means(metric).items() if d == dataset} for dataset in VALUES}


def write(folder, **texts):
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return [folder / name.replace("__", ".") for name in texts]


LAYOUTS = {
    "long.csv": (LONG, None),
    "semicolons.csv": (LONG.replace(".", ",").replace("dataset,method,metric,value", "Data set,Model,Metric,Score")
                       .replace(",", ";").replace("0;", "0,"), None),
    "methods.csv": ("Dataset,forest,network\ncifar,0.81,0.93\nsvhn,0.70,0.88\n", "accuracy"),
    "metrics.tsv": ("task\tmodel\taccuracy\tnotes\ncifar\tforest\t0.81\told\ncifar\tnetwork\t0.93 ± 0.01\t\n"
                    "svhn\tforest\t0.7\t\nsvhn\tnetwork\t0.88\t\n", None),
    "datasets.csv": ("method,cifar,svhn\nforest,0.81,0.7\nnetwork,0.93,0.88\n", "accuracy"),
    "paper.md": ("# Results\n\n| Method | cifar | svhn |\n|:--|--:|--:|\n| forest | 0.81 | 0.70 |\n"
                 "| network | **0.93** | 0.88 (0.02) |\n\nText.\n", "accuracy"),
    "paper.tex": ("\\begin{tabular}{l|cc}\n\\toprule\nMethod & cifar & svhn \\\\ \\midrule\n% comment\n"
                  "forest & 0.81 & 0.70 \\\\\n\\textbf{network} & $\\mathbf{0.93} \\pm 0.01$ & 0.88 \\\\\n"
                  "\\bottomrule\n\\end{tabular}\n", "accuracy"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_holds_the_same_values(tmp_path, name):
    text, metric = LAYOUTS[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert means(read_results(tmp_path / name, metric=metric)) == VALUES


def test_one_file_per_data_set_and_data_frames(tmp_path):
    texts = {f"{d}__csv": "Model,Accuracy,NLL\n" + "".join(f"{m},{v},1\n" for m, v in own.items())
             for d, own in VALUES.items()}  # fmt: skip
    files = write(tmp_path, **texts)
    table = read_results(files)
    assert means(table, "Accuracy") == VALUES
    assert table.metrics == ("Accuracy", "NLL")
    assert "read with one column per metric: Accuracy, NLL" in table.notes[0]
    frames = {d: pd.DataFrame({"accuracy": own}).rename_axis("method") for d, own in VALUES.items()}
    assert means(read_results(frames)) == VALUES
    wide = pd.DataFrame(VALUES).T.rename_axis("dataset").reset_index()
    ranks = dubio.rank_methods(wide, metrics=["accuracy"])
    assert list(ranks.comparison.average_ranks) == ["network", "forest"]
    assert ranks.to_json()["notes"] == list(ranks.notes)
    with pytest.raises(UserError, match="given int"):
        dubio.rank_methods(3)


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.md", "| Method | cifar | svhn |\n|---|---|---|\n| forest | - | 0.7 |\n| network | 0.93 | 0.88 |\n"),
     ("t.tex", "\\begin{tabular}{lcc}Method & cifar & svhn \\\\ forest & & 0.7 \\\\ network & 0.93 & 0.88 \\\\\n"
               "\\end{tabular}")],
)  # fmt: skip
def test_a_row_with_a_gap_is_read_for_the_rest(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    cells = read_results(tmp_path / name, metric="accuracy").means("accuracy")
    assert {cell: float(value) for cell, value in cells.items()} == {
        ("svhn", "forest"): 0.7, ("cifar", "network"): 0.93, ("svhn", "network"): 0.88
    }  # fmt: skip


def test_a_comma_in_the_header_separates_whatever_else_is_there(tmp_path):
    assert means(read_results(*write(tmp_path, t__csv=LONG.replace("value", "value,of a;b", 1).replace("\n", ",\n")
                                     .replace("a;b,", "a;b")))) == VALUES  # fmt: skip


def test_rows_of_a_data_frame_are_counted_from_one():
    frame = pd.DataFrame({"dataset": ["A", "A"], "method": ["x", "y"], "metric": "nll", "value": ["bad", "1"]})
    with pytest.raises(BadFile, match="row 1: value 'bad'"):
        read_results(frame)
    with pytest.raises(UserError, match="no table is given"):
        read_results([])


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_a_missing_value_of_a_data_frame_is_an_empty_cell(missing):
    source = pd.Series(["a", missing, "a", missing], dtype=object)
    frame = pd.DataFrame({"source": source, "dataset": list("XYXY"), "method": list("ppqq"), "brier": [1, 2, 3, 4.0]})
    table = read_results(frame, Columns(block="source"))
    assert table.blocks == {"X": "a"}
    assert "each a block of its own: Y." in table.notes[-1]
    with pytest.raises(UserError, match=r"--block-col source: only columns of a file.*a table that is read already"):
        dubio.rank_methods(table, columns=Columns(block="source"))


def test_a_gzipped_table_is_read_up_to_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("dubio.statistics.result_files.MAX_BYTES", len(LONG))
    for more in ("", "0"):
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress((LONG.rstrip("\n") + "0" + more).encode()))
        if more:
            with pytest.raises(BadFile, match=f"unpacks to more than {len(LONG)} bytes"):
                read_results(tmp_path / "t.csv.gz")
        else:
            assert means(read_results(tmp_path / "t.csv.gz")) == VALUES


def test_seeds_are_averaged_and_unused_columns_named(tmp_path):
    text = "dataset,method,seed,brier,comment\nA,x,0,0.1,first\nA,x,1,0.3,\n"
    table = read_results(*write(tmp_path, t__csv=text))
    assert table.means("brier") == {("A", "x"): Fraction(1, 5)}
    assert [result.seed for result in table.results] == ["0", "1"]
    assert "columns that are not used: comment" in table.notes[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method,accuracy,nll\na,1,2\n", "columns accuracy, nll are metrics, and no column names the data set"),
        ("dataset,accuracy,nll\nA,1,2\n", "are metrics, and no column names the method"),
        ("dataset,forest,network\nA,1,2\n", "name it with --metric"),
        ("a,b\n1,2\n", "no column names the data set or the method.*Its columns are a, b.*dataset,method,metric,value"),
        ("dataset,method\nA,x\n", "no column has numbers"),
        ("dataset,model,algorithm,brier\nA,x,y,1\n", "model, algorithm may all be the method; name it with --method"),
        ("dataset,method,brier\nA,x,1\nA,y,low\n", "row 3: brier 'low' is not a finite number"),
        ("dataset,method,brier\nA,x,1\nA,y,1e-320\n", "'1e-320' is not a finite number, 0 or between 1e-300 and 1e300"),
        (f"dataset,method,brier\nA,x,1\nA,y,{'9' * 400}\n", "brier '9{59} is not a finite number"),
    ],
)
def test_a_table_that_is_not_understood_says_what_is_missing(tmp_path, text, message):
    with pytest.raises(BadFile, match=message):
        read_results(*write(tmp_path, t__csv=text))


def test_a_gap_of_a_wide_table_is_named(tmp_path):
    files = write(tmp_path, t__csv="dataset,x,y\nA,0.1,0.2\nB,0.3,-\n")
    with pytest.raises(UserError, match="method 'y' has no brier on dataset 'B'"):
        dubio.rank_methods(files, metrics=["brier"])


def test_rows_that_repeat_a_cell_are_named(tmp_path):
    (path,) = write(tmp_path, twice__csv=LONG + "cifar,forest,accuracy,0.83\n")
    table = read_results(path)
    assert means(table)["cifar"]["forest"] == pytest.approx(0.82)
    assert "Several rows give the accuracy of forest on cifar (0 more such cells) and are averaged" in table.notes[-1]
    assert read_results(write(tmp_path, once__csv=LONG)[0]).notes == ()


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name.endswith((".csv", ".md"))])
def test_a_gzipped_table_is_read_as_the_table_in_it(tmp_path, name):
    text, metric = LAYOUTS[name]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert means(read_results(tmp_path / f"{name}.gz", metric=metric)) == VALUES


def test_a_whole_number_is_one_name_with_and_without_decimals(tmp_path):
    """A column with a gap is written as 1.0 by pandas: of the same sources a file without a gap has 1."""
    sources = {"X": 1, "Y": 1}, {"W": 1, "Z": None}, {"V": 2}
    frames = [
        pd.DataFrame([(d, m, 0.1 * k, s, 0) for d, s in own.items() for k, m in enumerate("ab")],
                     columns=["dataset", "method", "brier", "source", "seed"])
        for own in sources
    ]  # fmt: skip
    for k, frame in enumerate(frames):
        frame.to_csv(tmp_path / f"{k}.csv", index=False)
    files = [tmp_path / f"{k}.csv" for k in range(3)]
    assert "1.0" in files[1].read_text()
    columns = Columns(block="source")
    assert read_results(files, columns).blocks == read_results(frames, columns).blocks == {
        "X": "1", "Y": "1", "W": "1", "V": "2"
    }  # fmt: skip
    assert dubio.rank_methods(files, columns=columns).comparison.friedman.datasets == 3


@pytest.mark.parametrize(
    ("text", "name"),
    [("1.0", "1"), ("-3.00", "-3"), ("-0.0", "0"), ("0.5", "0.5"), ("1.10", "1.10"), ("01", "01"), ("01.0", "01.0"),
     ("v1.0", "v1.0"), ("1.0.0", "1.0.0"), ("9007199254740993.0", "9007199254740993.0"), ("9" * 5000 + ".0", None)],
)  # fmt: skip
def test_names_of_other_numbers_stay_as_they_are(tmp_path, text, name):
    (path,) = write(tmp_path, t__csv=f"dataset,method,seed,brier\n{text},{text},{text},1.0\n")
    (result,) = read_results(path).results
    assert {result.dataset, result.method, result.seed} == {name or text}
    assert result.value == 1


def test_whole_numbers_in_a_header_are_the_same_names(tmp_path):
    files = write(tmp_path, a__csv="dataset,1,2\nA,0.1,0.2\n", b__csv="dataset,1.0,2.0\nB,0.3,0.4\n")
    table = read_results(files, metric="brier")
    assert {result.method for result in table.results} == {"1", "2"}
