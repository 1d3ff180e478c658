"""The commands that make a report again."""

from __future__ import annotations

from dataclasses import replace

from dubio.reporting.build import build_report
from dubio.reporting.merging import merge
from dubio.reporting.sections.setup import commands, row_accounts
from tests.reporting.helpers import part_of_run
from tests.reporting.stored_runs import World


def test_runs_reported_together_can_be_made_again_from_nothing(world: World) -> None:
    store, manifest = world[0], part_of_run(world[1], "screening")
    paper = {**manifest, "name": "text", "benchmark": {"name": "text", "preset": "paper"}}
    small = {**manifest, "name": "text", "command": "dubio run text --preset small --seeds 3"}
    run = build_report(store, merge(store, {"text-1a": paper, "text-2b": small})).run
    assert commands(run).splitlines() == [
        "dubio run text --preset paper …",  # a manifest of an earlier version does not state its command
        "dubio run text --preset small --seeds 3",
        "dubio report --run text-1a --run text-2b",
    ]


def test_what_changes_the_page_alone_is_an_option_of_the_report(world: World) -> None:
    store, manifest = world[0], part_of_run(world[1], "screening")
    run = build_report(store, {**manifest, "command": "dubio run toy"}, options=("as-published",)).run
    assert commands(replace(run, margin=0.02)).splitlines() == [
        "dubio run toy",
        f"dubio report {manifest['name']} --as-published --margin 0.02",
    ]


def test_rows_read_used_and_left_out_are_in_the_document(world: World) -> None:
    store, manifest = world[0], part_of_run(world[1], "screening")
    first = manifest["tasks"][0]
    rows = sum(split["examples"] for split in first["splits"]) + 3
    counted = {**first, "rows": rows, "left_out": {"because the text is empty": 3}}
    report = build_report(store, {**manifest, "tasks": [counted]})
    (account,) = row_accounts(report.run.tasks)
    assert account["read"] == rows == sum(account["used"].values()) + 3
    assert report.document()["rows"] == [account]
