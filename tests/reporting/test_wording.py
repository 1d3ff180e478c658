"""Sentences of the report and its commands, in cases where a careless one would be wrong or say nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dubio.reporting.findings import reading
from dubio.reporting.setup import commands
from dubio.reporting.standing import verdict_words
from dubio.studies.text.rates import Rates, rates_reading
from dubio.studies.text.spectral import CAPTION

from dubio.core.errors import UserError
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.merging import merge
from dubio.reporting.results import Results
from dubio.reporting.stored_run import open_run
from dubio.reporting.style import SPARE, Style
from dubio.reporting.wording import told_apart_in_digits
from dubio.statistics.verdicts import Verdict
from dubio.store import Store
from tests.reporting.world import FakeStore

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
    assert told_apart_in_digits(*pair) == told


def test_a_difference_and_what_would_be_resolved_are_not_the_same_number() -> None:
    assert verdict_words(Verdict("tied", 0.00368, 0.00374)) == (
        "not distinguishable: 0.00368 apart, where 0.00374 would be resolved"
    )
    assert verdict_words(Verdict("behind", -0.00374, 0.00368)) == (
        "distinguishable: 0.00374 apart, and 0.00368 would have been enough"
    )


def test_nothing_spreads_over_one_seed(results: Results) -> None:
    assert "over two seeds (and, for single fits, over all members trained)" in reading(results)
    runs = tuple(replace(run, seed=0) for run in results.manifest.runs)
    once = reading(replace(results, manifest=replace(results.manifest, runs=runs)))
    assert "over one seed" not in once
    assert "over the members trained; with one seed an ensemble has none" in once


@pytest.mark.parametrize(("count", "words"), [(1, "In one training the"), (3, "Over three trainings the")])
def test_one_training_is_one(count: int, words: str) -> None:
    rates = np.tile([0.1, 0.2], (count, 1))
    panel = Rates("a", ("K1", "K2"), ((Style("Concrete", *SPARE[0], False), rates),))
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
    assert "√k · s" in CAPTION


def test_one_of_several_runs_is_asked_for_where_only_one_can_be_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        for name in "ab":
            store.write_manifest({"schema": 1, "name": name}, "0" * 64)
    with pytest.raises(UserError, match=r"has 2 runs; name one: a-0.*, b-0"):
        open_run(store=tmp_path / "store")
