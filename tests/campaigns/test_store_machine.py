"""A store agrees with its model while processes die, stop and work at once; `make fuzz` runs many more series."""

from __future__ import annotations

import os

import pytest
from hypothesis.errors import Flaky

from campaigns import store_machine
from dubio.store import Store, locks, records
from dubio.store import store as store_module


def test_the_store_agrees_with_its_model():
    counts = store_machine.campaign(examples=6, first_seed=0, steps_each=20)
    assert min(counts["done"], counts["died"]) > 5


def test_setting_aside_gives_way_to_a_process_that_has_the_lock():
    machine = store_machine.StoreMachine()
    try:
        machine.one(("fit", 0))
        machine.damage(which=0, place=0.5, cut=False)
        with Store.open(machine.root).lock(store_machine.FITS[0]):  # as by one that dies before it sets it aside
            machine.at_once((("aside", "fit", 0), ("open", None)), (None, None))
        assert machine.state["fit", 0] == store_machine.DAMAGED
        machine.one(("aside", "fit", 0))
        assert ("fit", 0) not in machine.state
    finally:
        machine.teardown()


def in_place(scratch, target):
    """Put the files in place one by one."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(scratch.iterdir()):
        os.replace(path, target / path.name)


DEFECTS = {
    "a directory appears file by file": (locks, "place_directory", in_place),
    "a manifest has no seal": (store_module, "seal", records.json_bytes),
    "scratch of the living is swept": (locks, "is_held", lambda path: False),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_machine_notices(monkeypatch, defect):
    monkeypatch.setattr(*DEFECTS[defect])
    with pytest.raises((AssertionError, Flaky)):  # what depends on the moment may not fail a second time
        store_machine.campaign(examples=60, first_seed=0)
