"""A store written by version 0.1: it opens, is intact, gives the same numbers, and has everything a plan needs."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from dubio.store import Store
from dubio.store.maintenance import litter, rebuild_index, unreferenced
from dubio.store.verification import verify
from tests.cli.helpers import run_here

DATA = Path(__file__).parents[1] / "store" / "data" / "store-0.1"
RUN = "quick-a4f56c7a"
COMMAND = [
    "run", "quick", "--task", "breast-cancer", "--method", "deterministic", "--method", "mc-dropout",
    "--method", "deep-ensemble", "--seeds", "1", "--set", "epochs=3", "--set", "deep-ensemble.members=2",
    "--set", "mc-dropout.samples=4",
]  # fmt: skip
FITS = (
    "3c6ccfb97ebdeebfdabbd0da0158700fb9232901464332002376b04bafbfc0c8",
    "666bf709adc6806c6cf1f65f7f6804699f6b50f9f2bf3e3de1c73e9519634e97",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "store", tmp_path / "store"))


def test_it_opens_and_every_file_is_what_its_record_says(path: Path) -> None:
    with Store.open(path, create=False) as store:
        assert verify(store) == ()
        assert litter(store) == ()
        assert unreferenced(store) == ()
        assert (len(store.ids("fits")), len(store.ids("predictions"))) == (3, 4)
        assert set(FITS) < set(store.ids("fits"))
        assert rebuild_index(store) == ()
        assert set(store.read_fit(FITS[0]).tensors)


def test_its_predictions_give_the_numbers_that_version_0_1_wrote(path: Path) -> None:
    with (DATA / "results.csv").open(newline="") as source:
        table = [row for row in csv.DictReader(source) if row["split"] == "test"]
    rows = [row for row in table if row["metric"] in ("nll", "accuracy")]
    written = {(row["method"], row["member"], row["metric"]): float(row["value"]) for row in rows}
    assert len(written) == 8
    with Store.open(path, create=False) as store:
        manifest = store.manifest(RUN)
        split = next(split for split in manifest["tasks"][0]["splits"] if split["name"] == "test")
        for run in manifest["runs"]:
            predictions = store.read_predictions(run["id"], split["name"], split["fingerprint"])
            name = (run["method"], "" if run["member"] is None else str(run["member"]))
            assert written[*name, "nll"] == pytest.approx(-predictions.summary.log_label.mean(), abs=1e-12)
            correct = predictions.summary.chosen == predictions.labels
            assert written[*name, "accuracy"] == pytest.approx(correct.mean(), abs=1e-12)


def planned(path: Path, *options: str) -> tuple[int, int, int]:
    answer = run_here(path.parent, *COMMAND, *options, "--store", path, "--dry-run", "--json")
    assert answer.returncode == 0, answer.stderr
    plan = json.loads(answer.stdout)
    return plan["trainings"], plan["trainings_left"], plan["predictions_left"]


def test_the_same_command_plans_nothing_new_but_the_baselines_that_came_later(path: Path) -> None:
    pytest.importorskip("torch")
    assert planned(path, "--no-baselines") == (3, 0, 0)
    assert planned(path) == (6, 3, 3)
