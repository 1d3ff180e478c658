"""The study as files: P's tables as Markdown and CSV, and every curve as long tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from dubio.reporting.files import file_name
from dubio.reporting.tables import EMPTY, Table, TableCell
from dubio.studies.ensembles.apart import RULE
from dubio.studies.ensembles.paper_tables import PaperTable, augmentation_tables, sample_tables
from dubio.studies.ensembles.prefixes import MEASURES
from dubio.studies.ensembles.published import agreements, order_of
from dubio.studies.ensembles.study import SCORED, Study
from dubio.studies.ensembles.thresholded import SETTINGS

CURVES = ("task", "network", "method", "augmented", "samples", "run", "measure", "value")
EQUIVALENTS = ("task", "network", "method", "augmented", "samples", "score", "lower", "equivalent", "upper", "longest")
PUBLISHED = ("task", "network", "published_network", "method", "measure", "samples", "published_samples", "value",
             "published", "comparable")  # fmt: skip
TACES = ("task", "network", "method", "augmented", "samples", "threshold", "bins", "run", "tace")


def table_files(studies: Sequence[Study]) -> dict[str, str]:
    """File name → content, for every table of the study; none without a study."""
    if not studies:
        return {}
    found = {
        "ensembles-curves.csv": _csv(CURVES, _curves(studies)),
        "ensembles-equivalents.csv": _csv(EQUIVALENTS, _equivalents(studies)),
        "ensembles-tace.csv": _csv(TACES, _taces(studies)),
    }
    if published := list(_published(studies)):
        found["ensembles-published.csv"] = _csv(PUBLISHED, published)
    for what, tables in (("samples", sample_tables(studies)), ("augmentation", augmentation_tables(studies))):
        for corpus in dict.fromkeys(table.corpus for table in tables):
            own, name = [table for table in tables if table.corpus == corpus], f"{file_name(corpus)}-by-{what}"
            found[f"{name}.md"] = "\n".join(markdown(table) for table in own)
            found[f"{name}.csv"] = _layout_csv(own)
    return found


def markdown(table: PaperTable) -> str:
    """A table with its title and what it shows."""
    grid = table.grid
    heads = [grid.first, *(_escaped(column.title) for column in grid.columns)]
    lines = [f"### {_escaped(table.title)}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in grid.rows:
        cells = [_escaped(row.title), *(_plain(cell) for cell in row.cells)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{grid.caption}.", ""])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(cell: TableCell) -> str:
    return "" if cell is EMPTY else cell.plain


def _layout_csv(tables: Sequence[PaperTable]) -> str:
    """The same blocks one under the other, the score in the first column."""
    grids: list[tuple[str, Table]] = [(table.title, table.grid) for table in tables]
    heads = ("score", grids[0][1].first, *(column.title for column in grids[0][1].columns))
    return _csv(
        heads, ((title, row.title, *(_plain(cell) for cell in row.cells)) for title, each in grids for row in each.rows)
    )


def _curves(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    for study in studies:
        for line in study.lines:
            for run, of_run in enumerate(line.values):
                for size, values in zip(line.sizes, of_run, strict=True):
                    for measure, value in zip(MEASURES, values, strict=True):
                        yield (*_of(study), line.name, int(line.augmented), size, run, measure, repr(float(value)))


def _equivalents(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    """Past the longest ensemble the equivalent is written ``inf``."""
    for study in studies:
        for line in study.lines:
            for score in SCORED:
                for size, worth in zip(line.sizes, study.equivalents(line, score), strict=True):
                    bounds = [repr(part.size) for part in (worth.lower, worth.central, worth.upper)]
                    longest = worth.central.longest
                    yield (*_of(study), line.name, int(line.augmented), size, score, *bounds, longest)


def _taces(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    for study in studies:
        for line in study.lines:
            for run, values in enumerate(line.tace):
                for (threshold, bins), value in zip(SETTINGS, values, strict=True):
                    told = int(line.augmented), line.samples, threshold, bins, run, repr(float(value))
                    yield (*_of(study), line.name, *told)


def _published(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    """Values beside published ones: ``comparable`` is 1 of numbers, and 0 where only their order can be compared."""
    for study in studies:
        for each in agreements(study):
            theirs = each.published
            sizes = min(each.line.samples, theirs.samples), theirs.samples
            about = theirs.network, each.line.name, theirs.metric, *sizes
            yield (*_of(study), *about, repr(each.ours.mean), theirs.value, 1)
        order = order_of(study)
        if order is None:
            continue
        for name in order.values.names:
            about = order.network, name, RULE, min(study.by_name[name].samples, order.here), order.there
            yield (*_of(study), *about, repr(order.values.before[name]), order.values.after[name], 0)


def _of(study: Study) -> tuple[str, str]:
    return study.task.key, study.task.network


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return sink.getvalue()
