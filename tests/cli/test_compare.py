"""``dubio compare`` from the outside: JSON, table, cautions, diagram and bad input."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import dubio
from dubio.cli.compare import compare
from dubio.core.errors import UserError
from dubio.statistics.result_table import Columns

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "text_in_domain.csv"
app = typer.Typer()
app.command()(compare)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def table(path, metric="brier", methods="abc", datasets="XYZ", **more):
    lines = [",".join(["dataset", "method", "metric", "value"])]
    for i, dataset in enumerate(datasets):
        lines += [f"{dataset},{method},{metric},{0.1 * j + i}" for j, method in enumerate(methods)]
    path.write_text("\n".join([*lines, *more.get("extra", ())]) + "\n")
    return path


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the published tables are not here")
@pytest.mark.parametrize(("metrics", "best"), [(("NLL", "Brier"), [142, 0, 28]), (("ECE",), [45, 1, 39])])
def test_published_table(metrics, best):
    options = [option for metric in metrics for option in ("--metric", metric)]
    result = run("--results", REFERENCE, *options, "--round", 3, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["win_draw_loss"]["Deep Ensemble"] == best
    assert len(found["average_ranks"]) == 18
    assert found["critical_difference"] == pytest.approx(11.779, abs=5e-4)
    assert set(found["friedman"]) >= {"chi2", "p", "iman_davenport", "iman_davenport_p"}
    assert f"caution: {metrics[0]}" in result.stderr


def test_plain_output_names_what_is_not_ranked(tmp_path):
    path = table(tmp_path / "t.csv", extra=[f"{d},{m},ECE,0.1" for d in "XYZ" for m in "abc"])
    result = run("--results", path)
    assert result.exit_code == 0
    assert "not ranked: ECE. Calibration errors" in result.stdout
    assert "critical difference" in result.stdout
    assert result.stderr == ""


def test_direction_turns_the_ranks(tmp_path):
    path = table(tmp_path / "t.csv", metric="mine")
    for direction, best in (("lower", "a"), ("higher", "c")):
        found = json.loads(run("--results", path, "--metric", "mine", "--better", f"mine={direction}", "--json").stdout)
        assert next(iter(found["average_ranks"])) == best
        assert found["win_draw_loss"][best] == [6, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metric", "mine"), "--better mine=higher"),
        (("--metric", "mone"), "Did you mean 'mine'"),
        (("--method-col", "methd"), "Did you mean 'method'"),
        (("--better", "mine"), "METRIC=higher"),
        (("--better", "mine=up"), "higher"),
        (("--metric", "mine", "--better", "mine=lower", "--alpha", "2"), "alpha"),
        (("--metric", "mine", "--better", "mine=lower", "--diagram", "x.bmp"), ".svg"),
        (("--store", "somewhere"), "either --results"),
    ],
)
def test_mistakes_are_named(tmp_path, arguments, message):
    result = run("--results", table(tmp_path / "t.csv", metric="mine"), *arguments)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)


def test_one_dataset_and_gaps_are_refused(tmp_path):
    one = run("--results", table(tmp_path / "t.csv", datasets="X"))
    assert "at least two datasets; given one, 'X'" in str(one.exception)
    gap = run("--results", table(tmp_path / "t.csv", extra=["X,d,brier,1"]))
    assert "method 'd' has no brier on dataset 'Y'" in str(gap.exception)
    text = run("--results", table(tmp_path / "t.csv", extra=["X,d,brier,good"]))
    assert "row 11: value 'good'" in str(text.exception)
    assert "either --results" in str(run().exception)
    for arguments in (("none.csv",), ("--results", "none.csv")):
        assert str(run(*arguments).exception) == "table of results 'none.csv': no such file."


def test_store_scores_are_compared(tmp_path, monkeypatch):
    """Splits of one kind are averaged within a task; undefined values leave a gap that is named."""

    def score(task, split, kind, method, value, metric="brier"):
        return SimpleNamespace(
            task=task, split=split, kind=kind, method=method, seed=0, member=None, metric=metric, value=value
        )

    scores = [
        score(t, s, "shift", m, v)
        for t in "AB"
        for s, d in (("s-1", 0.0), ("s-2", 0.2))
        for m, v in (("x", 0.1 + d), ("y", 0.4 + d))
    ]
    scores += [score("A", "test", "id", "x", 0.5), score("A", "s-1", "shift", "random-referral", 0.0)]
    scored = SimpleNamespace(scores=scores, not_ranked={"nll": "why"}, better={"brier": "lower"})
    path = Path(__file__).parents[1] / "store" / "data" / "store-0.1" / "store" / "runs" / "quick-a4f56c7a.json"
    store = SimpleNamespace(manifests=lambda: ("quick-1",), manifest=lambda name: json.loads(path.read_text("utf-8")))
    monkeypatch.setattr("dubio.store.Store.open", lambda path, create: store)
    report = SimpleNamespace(run=SimpleNamespace(scores=scored, tasks=()))
    monkeypatch.setattr("dubio.reporting.reported.build_report", lambda opened, manifest, **_: report)
    found = json.loads(run("--store", tmp_path, "--kind", "shift", "--metric", "brier", "--json").stdout)
    assert found["datasets"] == ["A", "B"]
    assert found["win_draw_loss"] == {"x": [2, 0, 0], "y": [0, 0, 2]}
    scores.append(score("A", "s-1", "shift", "only-on-a", 0.0))
    without = json.loads(run("--store", tmp_path, "--kind", "shift", "--metric", "brier", "--json").stdout)
    assert without["average_ranks"].keys() == {"x", "y"}
    assert without["notes"] == ["left out, because they are not ranked, or have no value, on every task: only-on-a."]
    assert "'accuracy'" in str(run("--store", tmp_path, "--kind", "shift").exception)
    assert "no scores" in str(run("--store", tmp_path, "--kind", "ood").exception)
    assert "unknown value of --kind 'odd'" in str(run("--store", tmp_path, "--kind", "odd").exception)
    scores[:] = [*scores, *(score("C", "s-1", "shift", m, v) for m, v in (("x", 0.3), ("y", 0.2)))]
    trained_on = {"A": "one", "B": "one", "C": "another"}
    report.run.tasks = tuple(SimpleNamespace(key=key, training_data=data) for key, data in trained_on.items())
    scored.learning = lambda task: {}
    shared = json.loads(run("--store", tmp_path, "--kind", "shift", "--metric", "brier", "--json").stdout)
    assert (len(shared["datasets"]), shared["blocks"]) == (3, 2)
    named = run("--store", tmp_path, "--kind", "shift", "--metric", "brier", "--block-col", "source")
    assert "--block-col source: only columns of a file" in str(named.exception)


def test_data_sets_of_one_source_are_one_measurement(tmp_path):
    """Twelve transfers of four sources, on which a method's values go with its four networks."""
    generator = np.random.default_rng(0)
    rows = ["source,dataset,method,metric,value"]
    for source in "abcd":
        level = dict(zip("xyz", generator.normal(size=3), strict=True))
        rows += [f"{source},{source}-{k},{m},brier,{level[m] + 0.01 * k:.4f}" for k in range(3) for m in "xyz"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(rows) + "\n")
    apart, blocked = (json.loads(run(path, *options, "--json").stdout) for options in ((), ("--block-col", "source")))
    assert (apart["blocks"], blocked["blocks"]) == (12, 4)
    assert blocked["critical_difference"] == pytest.approx(apart["critical_difference"] * np.sqrt(3))
    assert apart["friedman"]["p"] < blocked["friedman"]["p"]
    assert apart["average_ranks"] == pytest.approx(blocked["average_ranks"])
    text = run(path, "--block-col", "source").stdout
    assert "3 methods on 12 datasets in 4 blocks, which are the independent measurements, by brier" in text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "source,dataset,method,metric,value\na,X,x,brier,1\nb,X,y,brier,2",
            "t.csv: row 3: --block-col source: data set 'X' is in two blocks, 'a' and 'b'; a data set is in one. "
            "The first is in {path}: row 2.",
        ),
        ("source,dataset,method,brier\na,X,x,1\na,X,y,2\na,Y,x,1\na,Y,y,2", "of one block: X, Y."),
        ("source,method,metric,X,Y\na,x,brier,1,2\na,y,brier,2,1", "--block-col needs one row per data set"),
        ("sauce,dataset,method,metric,value\na,X,x,brier,1", "unknown column 'source'. Did you mean 'sauce'?"),
    ],
)
def test_blocks_that_no_table_can_mean_are_refused(tmp_path, rows, message):
    path = tmp_path / "t.csv"
    path.write_text(rows + "\n")
    assert message.format(path=path) in str(run(path, "--block-col", "source").exception)


RESULTS_OF_A_RUN = """\
task,split,kind,method,seed,member,metric,value
A,test,id,x,0,0,brier,0.1
A,test,id,x,0,1,brier,0.3
A,test,id,y,0,,brier,0.15
A,test,id,only-on-a,0,0,brier,0.01
A,noise-1,shift,x,0,0,brier,0.5
A,noise-1,shift,y,0,,brier,0.8
A,novel,ood,x,0,0,ood_auroc,0.9
A,novel,ood,y,0,,ood_auroc,0.8
A,novel,ood,y,0,,ood_correlation,
A,test,id,random-referral,0,0,brier,0.0
B,test,id,x,0,0,brier,0.4
B,test,id,y,0,,brier,0.3
B,test,id,y,0,,nll,inf
"""


def test_the_results_of_a_run_are_compared_as_the_run_is(tmp_path):
    """An undefined score does not matter to others, and in-domain scores are not averaged with those under shift.

    In-domain y is better on both (0.15 < 0.2, 0.3 < 0.4); with the shift x would be the better one on A (0.3 < 0.475).
    """
    path = tmp_path / "results.csv"
    path.write_text(RESULTS_OF_A_RUN)
    compared = json.loads(run(path, "--metric", "brier", "--json").stdout)
    assert compared["win_draw_loss"] == {"y": [2, 0, 0], "x": [0, 0, 2]}
    kinds, gap = compared["notes"]
    assert kinds.endswith("scores on splits of the kind id; others (--kind): shift, ood.")
    assert gap.endswith("on every task: only-on-a.")
    assert "at least two datasets; given one, 'A'" in str(run(path, "--kind", "ood").exception)
    path.write_text(RESULTS_OF_A_RUN + RESULTS_OF_A_RUN.replace("A,", "C,").partition("\n")[2])
    ranked = json.loads(run(path, "--kind", "ood", "--json").stdout)
    assert (ranked["metrics"], ranked["win_draw_loss"]["x"]) == ({"ood_auroc": "higher"}, [2, 0, 0])
    assert "there are no scores on such a split" in str(run(write_id(tmp_path), "--kind", "shift").exception)


def write_id(folder):
    path = folder / "id.csv"
    path.write_text("".join(line for line in RESULTS_OF_A_RUN.splitlines(True) if "shift" not in line))
    return path


def test_results_of_a_run_may_name_blocks(tmp_path):
    head, *rows = RESULTS_OF_A_RUN.splitlines()
    rows += [row.replace("B,", "C,", 1) for row in rows if row.startswith("B,")]
    path = tmp_path / "results.csv"
    path.write_text("\n".join([f"{head},source", *(f"{row},{'a' if row[0] == 'A' else 'b'}" for row in rows)]))
    compared = json.loads(run(path, "--metric", "brier", "--block-col", "source", "--json").stdout)
    assert (len(compared["datasets"]), compared["blocks"]) == (3, 2)


@pytest.mark.parametrize("kind", ["ood", "nonsense"])
def test_a_table_has_no_kinds_of_test_splits(tmp_path, kind):
    said = {"ood": "--kind ood: only a run, and its results.csv", "nonsense": "unknown value of --kind 'nonsense'"}
    assert said[kind] in str(run(table(tmp_path / "t.csv"), "--kind", kind).exception)


def test_whole_numbers_that_pandas_has_as_floats_are_the_same_names():
    """A missing cell turned the sources 1 and 2 of one frame into 1.0 and 2.0, which were further blocks."""
    pandas = pytest.importorskip("pandas")
    sources = {"X": 1, "Y": 1}, {"W": 1, "Z": None}, {"V": 2}
    frames = [
        pandas.DataFrame([(d, m, 0.1 * k, s) for d, s in own.items() for k, m in enumerate("ab")],
                         columns=["dataset", "method", "brier", "source"])
        for own in sources
    ]  # fmt: skip
    ranks = dubio.rank_methods(frames, columns=Columns(block="source"))
    assert (len(ranks.comparison.datasets), ranks.comparison.friedman.datasets) == (5, 3)


def test_the_same_mean_ranks_are_no_same_order(tmp_path):
    """Methods that changed places between data sets under both metrics had "the same order on every dataset"."""
    lines = ["dataset,method,brier,nll", "X,a,1,2", "X,b,2,1", "X,c,9,9", "Y,a,2,1", "Y,b,1,2", "Y,c,9,9"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    text = run(path, "--metric", "brier", "--metric", "nll").stdout
    assert "F = ∞, the methods have the same mean ranks on every dataset" in text


@pytest.mark.parametrize("column", ["block", "seed"])
def test_a_named_column_that_is_not_there_is_refused_whatever_its_name(tmp_path, column):
    message = str(run(table(tmp_path / "t.csv"), f"--{column}-col", column).exception)
    assert f"unknown column '{column}'" in message
    assert message.endswith(f"Name it with --{column}-col.")
    path = tmp_path / "fold.csv"  # a column of another usual name is none that was named
    path.write_text("dataset,method,brier,fold,source\nX,a,1,0,p\nY,a,2,0,q\n")
    assert f"unknown column '{column}'" in str(run(path, f"--{column}-col", column).exception)


def test_a_column_cannot_be_two(tmp_path):
    result = run(table(tmp_path / "t.csv"), "--block-col", "dataset")
    assert "column 'dataset' cannot be both the dataset and the block; name another with" in str(result.exception)


def test_data_sets_without_a_block_are_blocks_of_their_own_and_are_named(tmp_path):
    """Empty cells were one block together; a cell that is empty in one row alone was a contradiction."""
    path, blocks = tmp_path / "t.csv", {"P": ("a", ""), "Q": ("-", "a"), "R": ("", ""), "S": ("", "NaN"), "a": ("", "")}
    rows = [
        f"{block},{d},{m},0.{n}"
        for d, own in blocks.items()
        for n, (m, block) in enumerate(zip("xy", own, strict=True))
    ]
    path.write_text("\n".join(["source,dataset,method,brier", *rows]) + "\n")
    result = run(path, "--block-col", "source", "--json")
    document = json.loads(result.stdout)
    assert (len(document["datasets"]), document["blocks"]) == (5, 4)
    assert "Data sets without a value of --block-col source, each a block of its own: R, S, a." in result.stderr


def test_a_column_of_blocks_is_not_taken_for_the_data_sets(tmp_path):
    """Of files with a column task, which usually names the data set."""
    for name in ("a1", "a2", "b1"):
        (tmp_path / f"{name}.csv").write_text(f"task,method,brier\n{name[0]},x,0.1\n{name[0]},y,0.2\n")
    files = [tmp_path / f"{name}.csv" for name in ("a1", "a2", "b1")]
    document = json.loads(run(*files, "--block-col", "task", "--json").stdout)
    assert (document["datasets"], document["blocks"]) == (["a1", "a2", "b1"], 2)


def test_a_data_set_in_blocks_of_two_files_names_both(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"source,dataset,method,brier\n{name},X,{name},0.1\n")
    message = str(run(tmp_path / "a.csv", tmp_path / "b.csv", "--block-col", "source").exception)
    assert message.startswith(f"{tmp_path / 'b.csv'}: row 2: ")
    assert message.endswith(f"The first is in {tmp_path / 'a.csv'}: row 2.")


def test_the_order_on_every_dataset_is_not_concluded_from_blocks(tmp_path):
    """In both blocks the mean ranks are 1.5, 1.5 and 3, while x and y change places within them."""
    values = {"a1": (1, 2, 3), "a2": (2, 1, 3), "b1": (1, 2, 3), "b2": (2, 1, 3)}
    rows = [f"{d[0]},{d},{m},{v}" for d, own in values.items() for m, v in zip("xyz", own, strict=True)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["source,dataset,method,brier", *rows]) + "\n")
    assert "F = ∞, the methods have the same mean ranks in every block" in run(path, "--block-col", "source").stdout


def test_files_of_one_data_set_each_are_compared(tmp_path):
    for name, step in (("A", 0.1), ("B", 0.2), ("C", 0.3)):
        rows = "".join(f"{method},{0.5 + step * j},{j}\n" for j, method in enumerate("xyz"))
        (tmp_path / f"{name}.csv").write_text("model,AUROC,FPR95\n" + rows)
    files = [tmp_path / f"{name}.csv" for name in "ABC"]
    for arguments in (files, [part for file in files for part in ("--results", file)]):
        result = run(*arguments, "--json")
        found = json.loads(result.stdout)
        assert found["datasets"] == ["A", "B", "C"]
        assert found["metrics"] == {"AUROC": "higher", "FPR95": "lower"}
        assert "read with one column per metric: AUROC, FPR95" in result.stderr


def test_a_metric_of_no_known_direction_is_named_with_the_nearest_and_the_option(tmp_path):
    rows = [f"{data},{method},{metric},0.{n}" for n, method in enumerate("abc") for data in ("one", "two")
            for metric in ("accuracy", "acuracy")]  # fmt: skip
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["dataset,method,metric,value", *rows]))
    output = run("--results", path).output
    assert "the nearest metric dubio knows is 'accuracy'); give --better acuracy=higher" in output
    assert "F = ∞, the methods have the same order on every dataset" in output  # an F test with p = 0 of two data sets
    assert "p = 0\n" not in output
