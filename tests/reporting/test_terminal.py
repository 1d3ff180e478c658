"""The tables that the terminal shows."""

from __future__ import annotations

import io

from rich.console import Console

from dubio.reporting import terminal_table
from dubio.reporting.build import Report
from tests.reporting.stored_runs import World


def test_the_terminal_shows_every_method_with_its_spread(world: World, report: Report) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal_table(report))
    text = console.export_text()
    for method in world[1]["methods"]:
        assert text.count(method["title"]) >= 3
    cell = report.run.scores.cells["digits", "test", "deterministic", "accuracy"]
    assert f"{cell.mean:.3f} ± {cell.std:.3f}" in text
    assert "[bold]" not in text
    assert "The question is whether methods differ, given training set and split." in text
