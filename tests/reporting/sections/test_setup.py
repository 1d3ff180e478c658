"""The commands that make a report again."""

from __future__ import annotations

from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.merging import merge
from dubio.reporting.sections.setup import commands
from tests.reporting.stored_runs import World


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
