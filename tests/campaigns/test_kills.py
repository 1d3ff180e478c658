"""Kills of two runs on one store, as `make faults` does them by the hundred, and that the campaign sees a fault."""

from __future__ import annotations

from campaigns.faults import run_faults
from campaigns.kills import LOG, TORCH, Series, Tally, Trial, World, plan_series

from dubio.store import Store
from tests.store.helpers import write_fit


def test_killed_runs_end_with_the_bits_of_an_undisturbed_one():
    figures = run_faults("--kills", "5", "--seed", "1", "--torch-share", "0", "--series", "3")["kills"]
    assert figures["problems"] == []
    assert figures["series"] == {"the same bits": 1}
    assert figures["of_two"] == sum(figures["kills"].values()) >= 4
    assert figures["in_fit"] >= 3  # most in mid-work
    assert figures["trainings"]["end"] >= 12


def test_other_bits_are_seen(tmp_path):
    tally = Tally()
    world = World(tmp_path / "world", "tests.runner.fake_trainer")
    with Store.open(world.store) as store:
        write_fit(store)
    (world.folder / LOG).write_text("end it\n")
    Trial(Series(0, world.trainer, 1, ("parent",), 0), world, 0, tally).compare({"fits/abc": "123"})
    assert tally.series == {"other bits": 1}
    assert len(tally.problems) == 1


def test_some_series_fit_with_torch_and_all_victims_come_up():
    series = [series for series, _ in zip(plan_series(200, 0.25), range(16), strict=False)]
    assert sum(one.trainer == TORCH for one in series) == 4
    assert {victim for one in series for victim in one.victims} == {"parent", "worker", "group"}
    assert {one.runs for one in series} == {1, 2}
