"""Sentences of the report and its commands, in cases where a careless one would be wrong or say nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.reporting.leaderboard import verdict_phrase
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.merging import merge
from dubio.reporting.run_view import RunView
from dubio.reporting.sections.findings import how_to_read
from dubio.reporting.sections.setup import commands
from dubio.reporting.stored_run import open_run
from dubio.reporting.style import SPARE, Style
from dubio.reporting.wording import enough_digits, file_name
from dubio.statistics.verdicts import Verdict
from dubio.store import Store
from dubio.studies.text.training import SPECTRAL_CAPTION, Panel, rates_reading
from tests.reporting.stored_runs import FakeStore

World = tuple[FakeStore, dict[str, Any]]


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ((0.0371, 0.5), ("0.037", "0.5")),
        ((0.003712, 0.003734), ("0.00371", "0.00373")),
        ((0.1234561, 0.1234569), ("0.123456", "0.123457")),
        ((0.25, 0.25), ("0.25", "0.25")),
    ],
)
def test_two_numbers_have_the_digits_that_tell_them_apart(pair: tuple[float, float], told: tuple[str, str]) -> None:
    assert enough_digits(*pair) == told


def test_a_difference_and_what_would_be_resolved_are_not_the_same_number() -> None:
    tied, worse = Verdict("tied", 0.00368, 0.00374), Verdict("behind", -0.00374, 0.00368)
    assert verdict_phrase(tied).startswith("not significantly different: difference 0.00368")
    assert verdict_phrase(tied).endswith("0.00374")
    assert verdict_phrase(worse).startswith("significantly different: difference 0.00374")
    assert verdict_phrase(worse).endswith("0.00368")


def test_nothing_spreads_over_one_seed(run: RunView) -> None:
    assert "over two seeds" in how_to_read(run)
    runs = tuple(replace(one, seed=0) for one in run.manifest.runs)
    once = how_to_read(replace(run, manifest=replace(run.manifest, runs=runs)))
    assert "over one seed" not in once
    assert "with one seed an ensemble has no spread" in once


@pytest.mark.parametrize(("count", "words"), [(1, "In one training the"), (3, "Over three trainings the")])
def test_one_training_is_one(count: int, words: str) -> None:
    rates = np.tile([0.1, 0.2], (count, 1))
    panel = Panel("a", ((Style("Concrete", *SPARE[0], False), rates),), ("K1", "K2"))
    assert rates_reading([panel]).startswith(words)


def test_runs_reported_together_can_be_made_again_from_nothing(world: World) -> None:
    store, manifest = world
    paper = {**manifest, "name": "text", "benchmark": {"name": "text", "preset": "paper"}}
    small = {**manifest, "name": "text", "benchmark": {"name": "text", "preset": "small"}}
    told = commands(read_manifest(merge(store, {"text-1a": paper, "text-2b": small}))).splitlines()
    assert told == [
        "dubio run text --preset paper …",
        "dubio run text --preset small …",
        "dubio report --run text-1a --run text-2b",
    ]
    assert commands(read_manifest(paper)).splitlines()[0] == "dubio run text --preset paper"


def test_the_bound_of_a_convolution_is_told_apart_from_that_of_a_dense_layer() -> None:
    assert "√k · s" in SPECTRAL_CAPTION


def test_one_of_several_runs_is_asked_for_where_only_one_can_be_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        for name in "ab":
            store.write_manifest({"schema": 1, "name": name}, "0" * 64)
    with pytest.raises(UserError, match=r"2 runs.*a-0.*, b-0"):
        open_run(store=tmp_path / "store")


def test_a_file_name_has_one_dash_for_everything_that_is_no_letter_or_digit() -> None:
    assert file_name("cifar10 (preresnet)-cost") == "cifar10-preresnet-cost"
    assert file_name("quality: low / high") == "quality-low-high"
    assert file_name("…") == "unnamed"
