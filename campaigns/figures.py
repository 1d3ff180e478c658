"""Write the figures of the campaigns into a page: ``python -m campaigns.figures faults.json docs/reliability.md``.

Every table stands between ``<!-- NAME -->`` and ``<!-- end -->``; those of campaigns that were not run stay.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.pieces import Figures
from dubio.core.files import write_file


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown; numbers have thousands separators, all columns but the first are aligned right."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def kills_table(figures: Figures) -> str:
    """Return the table of kills."""
    victims, series = figures["kills"], figures["series"]
    total = sum(victims.values())
    rows = [
        ("kills of the parent / of one worker / of both",
         " / ".join(str(victims.get(name, 0)) for name in ("parent", "worker", "group"))),
        ("… with two runs on one store", figures["of_two"]),
        ("… in the middle of a fit", f"{figures['in_fit']} of {total}"),
        ("… with a checkpoint to resume from", figures["with_checkpoint"]),
        ("… of fits that train with torch", figures["torch_kills"]),
        ("series that ended with the same bits", f"{series.get('the same bits', 0)} of {sum(series.values())}"),
        ("trainings begun / resumed / ended",
         " / ".join(f"{figures['trainings'].get(name, 0):,}" for name in ("begin", "resume", "end"))),
        ("problems: other bits, a finished training begun again, a hang, damage, processes or scratch left",
         len(figures["problems"])),
    ]  # fmt: skip
    return table(("", ""), rows)


def calls_table(figures: Figures) -> str:
    """Return the table of failed system calls, one row per operation."""
    return _by_operation(figures, ("calls", "faults", "folders"), ("system calls", "faults", "different results"))


def power_table(figures: Figures) -> str:
    """Return the table of lost power, one row per operation."""
    columns = ("cuts", "possible", "drawn", "checked")
    return _by_operation(figures, columns, ("moments", "possible disks", "drawn", "different, checked"))


def _by_operation(figures: Figures, columns: Sequence[str], titles: Sequence[str]) -> str:
    names = list(figures[columns[0]])
    broken = [re.split(r", (?:call|cut) \d", line)[0] for line in figures["problems"]]
    rows = [[name, *(figures[column].get(name, 0) for column in columns), broken.count(name)] for name in names]
    totals = [sum(row[index] for row in rows) for index in range(1, len(titles) + 2)]
    return table(("", *titles, "problems"), [*rows, ["**all**", *totals]])


def nodes_table(figures: Figures) -> str:
    """Return the table of lost nodes."""
    rows = [
        ("rounds, with the bits of a local run", f"{figures['runs with equal bits']} of {figures['runs']}"),
        ("nodes lost in mid-run / joined", f"{figures['nodes lost in mid-run']} / {figures.get('nodes joined', 0)}"),
        ("jobs made / lost with their node and made again",
         f"{figures['jobs made']:,} / {figures.get('jobs lost', 0):,}"),
        ("jobs that failed", figures["jobs failed"]),
        ("problems: other bits, a failed job, a hang, a crash", len(figures["problems"])),
    ]  # fmt: skip
    return table(("", ""), rows)


def files_table(figures: Figures) -> str:
    """Return the table of damaged files, one row per reader."""
    columns = ("cases", "read", "refused", "failed", "seconds", "megabytes")
    rows = [
        [f"**{name}**" if name == "all" else name, *(row[column] for column in columns)]
        for name, row in figures.items()
    ]
    return table(("", *columns[:4], "longest, s", "peak above the start, MB"), rows)


def machine_table(figures: Figures) -> str:
    """Return the table of the store's state machine, which ends at a contradiction."""
    counts = [figures["endings"].get(name, 0) for name in ("done", "died", "stopped", "damaged")]
    head = ("series", "operations completed", "processes that died", "stopped", "damaged entries", "contradictions")
    return table(head, [(figures["series"], *counts, 0)])


def mutants_table(figures: Sequence[Figures]) -> str:
    """Return the table of mutants, one row per package."""
    rows = []
    for row in figures:
        killed = row.get("killed", 0) + row.get("hangs", 0)
        left = row.get("survived", 0) + row.get("not reached", 0) - row["explained"]
        cells = (killed + left + row["explained"], killed, row["explained"], left, f"{row['share_killed']:.1%}")
        rows.append((f"`{row['package']}/`", *cells))
    return table(("", "mutants", "killed", "explained", "survived", "killed of those not explained"), rows)


TABLES: Mapping[str, Callable[[Any], str]] = {
    "kills": kills_table, "system calls": calls_table, "lost power": power_table, "lost nodes": nodes_table,
    "hostile files": files_table, "store machine": machine_table, "mutants": mutants_table,
}  # fmt: skip


def with_figures(page: str, figures: Mapping[str, Any]) -> str:
    """Return a page with the tables of these figures.

    Raises:
        ValueError: When the page has no place for one of them.
    """
    for name, write in TABLES.items():
        if name in figures:
            stated = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
            if not stated.search(page):
                raise ValueError(f"the page has no '<!-- {name} -->' … '<!-- end -->'.")
            page = stated.sub(f"\n{write(figures[name])}\n\n".replace("\\", r"\\"), page)
    return page


def main() -> None:
    """Write the figures of some files into a page."""
    *sources, page = map(Path, sys.argv[1:])
    text = page.read_text("utf-8")
    for source in sources:
        text = with_figures(text, json.loads(source.read_text("utf-8")))
    write_file(page, text)


if __name__ == "__main__":
    main()
