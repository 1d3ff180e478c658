"""Tables in P's layout, on the page and as files, and every curve as long tables.

Rows are networks with their numbers of samples, columns methods, one table per score. Tables 4–6 of P hold mean ±
standard deviation over runs without augmentation, Tables 1 and 7–9 the values without and with test-time augmentation.
A method without that number of samples leaves its cell empty; a method of one sample, the single network or mean
weights, has its one value in every row, as in P.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dubio.reporting.score_table import Cell
from dubio.reporting.tables import EMPTY, Column, Row, Table, TableCell
from dubio.reporting.wording import file_name
from dubio.statistics.sample_curves import MEASURES, SIZES
from dubio.studies.ensembles.study import SCORED, TACE_SETTINGS, SampleCurve, Study


@dataclass(frozen=True)
class PaperScore:
    """A score as the tables show it: its measure, its title, what it is multiplied with and its decimals."""

    measure: str
    title: str
    factor: float
    places: int


SCORES = (
    PaperScore("error", "Error (%)", 100.0, 2),
    PaperScore("calibrated_nll", "Calibrated NLL (negative calibrated log-likelihood)", 1.0, 3),
    PaperScore("calibrated_brier", "Calibrated Brier", 1.0, 3),
    PaperScore("calibrated_aurc", "Calibrated AURC", 1.0, 4),
)
"""The four scores of P's tables, with their decimals there."""

CURVES = ("task", "network", "method", "augmented", "samples", "run", "measure", "value")
EQUIVALENTS = ("task", "network", "method", "augmented", "samples", "score", "lower", "equivalent", "upper", "longest")
TACES = ("task", "network", "method", "augmented", "samples", "threshold", "bins", "run", "tace")


@dataclass(frozen=True)
class PaperTable:
    """One table, with the data set that it belongs to."""

    corpus: str
    title: str
    table: Table


def sample_tables(studies: Sequence[Study]) -> list[PaperTable]:
    """Return P Tables 4–6: one per score, with a row per network and number of samples and a column per method."""
    return [
        PaperTable(corpus, f"{score.title} on {corpus}", _samples_table(own, score))
        for corpus, own in _by_corpus(studies).items()
        for score in SCORES
    ]


def augmentation_tables(studies: Sequence[Study]) -> list[PaperTable]:
    """Return P Tables 1 and 7–9: the same with cells “without vs with augmentation”; none without such methods."""
    tables = []
    for corpus, own in _by_corpus(studies).items():
        augmented = [study for study in own if any(curve.augmented for curve in study.curves)]
        if augmented:
            title = f"{{}} on {corpus}, without vs with augmentation"
            tables += [
                PaperTable(corpus, title.format(score.title), _augmentation_table(augmented, score)) for score in SCORES
            ]
    return tables


def _by_corpus(studies: Sequence[Study]) -> dict[str, list[Study]]:
    """Return data set → its studies, with other networks."""
    grouped: dict[str, list[Study]] = {}
    for study in studies:
        grouped.setdefault(study.task.corpus or study.task.name, []).append(study)
    return grouped


def _table(
    studies: Sequence[Study], columns: Mapping[str, str], caption: str, cells: Callable[[Study, int], list[TableCell]]
) -> Table:
    """Return one table: a row for each network and every number of samples that some method reaches."""
    rows = []
    for study in studies:
        reached = {size for curve in study.curves if curve.base in columns for size in curve.sizes}
        for size in (size for size in SIZES if size in reached):
            title = f"{study.task.network} ({size} {'sample' if size == 1 else 'samples'})"
            rows.append(Row(title, tuple(cells(study, size))))
    return Table(tuple(Column(title) for title in columns.values()), tuple(rows), caption, "Network (samples)")


def _samples_table(studies: Sequence[Study], score: PaperScore) -> Table:
    columns = {curve.name: curve.title for study in studies for curve in study.curves if not curve.augmented}

    def cells(study: Study, size: int) -> list[TableCell]:
        values = [_cell(study.by_name.get(name), score, size) for name in columns]
        best = min((cell.mean for cell in values if cell is not None), default=None)
        return [spread_cell(cell, score.places, "leading" if cell and cell.mean == best else "") for cell in values]

    caption = f"{score.title}: mean ± standard deviation over runs, for deep ensembles over random orders"
    return _table(studies, columns, caption, cells)


def _augmentation_table(studies: Sequence[Study], score: PaperScore) -> Table:
    pairs = {
        study.task.key: {
            curve.name: (curve, other) for curve in study.curves if (other := study.with_augmentation(curve))
        }
        for study in studies
    }
    columns = {name: curve.title for own in pairs.values() for name, (curve, _) in own.items()}

    def cells(study: Study, size: int) -> list[TableCell]:
        sides = [pairs[study.task.key].get(name, (None, None)) for name in columns]
        return [_versus(_cell(one, score, size), _cell(other, score, size), score.places) for one, other in sides]

    caption = f"{score.title}: augmentation lowers (↓) or raises (↑) it; ≈: the same in all digits shown"
    return _table(studies, columns, caption, cells)


def _cell(curve: SampleCurve | None, score: PaperScore, size: int) -> Cell | None:
    cell = None if curve is None else curve.at(score.measure, size)
    return None if cell is None else Cell(tuple(score.factor * value for value in cell.values))


def spread_cell(cell: Cell | None, places: int, place: str = "") -> TableCell:
    """Return a mean with its spread over runs."""
    if cell is None:
        return EMPTY
    spread = "" if cell.std is None else f"± {cell.std:.{places}f}"
    return TableCell(f"{cell.mean:.{places}f}", spread, f"{cell.mean:.9g}", place, f"over {cell.n} runs")


def _versus(plain: Cell | None, augmented: Cell | None, places: int) -> TableCell:
    if plain is None or augmented is None:
        return EMPTY
    one, other = (f"{cell.mean:.{places}f}" for cell in (plain, augmented))
    sign = "≈" if one == other else "↓" if float(other) < float(one) else "↑"
    return TableCell(f"{one} vs {other}{sign}", sort=f"{augmented.mean:.9g}")


def table_files(studies: Sequence[Study]) -> dict[str, str]:
    """Return file name → content for every table of the study; none without a study."""
    if not studies:
        return {}
    files = {
        "ensembles-curves.csv": csv_text(CURVES, _curve_rows(studies)),
        "ensembles-equivalents.csv": csv_text(EQUIVALENTS, _equivalent_rows(studies)),
        "ensembles-tace.csv": csv_text(TACES, _tace_rows(studies)),
    }
    for kind, tables in (("samples", sample_tables(studies)), ("augmentation", augmentation_tables(studies))):
        for corpus in dict.fromkeys(table.corpus for table in tables):
            own, name = [table for table in tables if table.corpus == corpus], f"{file_name(corpus)}-by-{kind}"
            files[f"{name}.md"] = "\n".join(_markdown(paper) for paper in own)
            files[f"{name}.csv"] = _layout_csv(own)
    return files


def _markdown(paper: PaperTable) -> str:
    """Return a table with its title and caption."""
    table = paper.table
    heads = [table.first, *(_escaped(column.title) for column in table.columns)]
    lines = [f"### {_escaped(paper.title)}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in table.rows:
        lines.append(f"| {' | '.join([_escaped(row.title), *map(_plain, row.cells)])} |")
    return "\n".join([*lines, "", f"{table.caption}.", ""])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(cell: TableCell) -> str:
    return "" if cell is EMPTY else cell.plain


def _layout_csv(tables: Sequence[PaperTable]) -> str:
    """Return the same tables one below the other, with the score in the first column."""
    first = tables[0].table
    heads = ("score", first.first, *(column.title for column in first.columns))
    rows = ((paper.title, row.title, *map(_plain, row.cells)) for paper in tables for row in paper.table.rows)
    return csv_text(heads, rows)


def _keys(studies: Sequence[Study]) -> Iterator[tuple[Study, SampleCurve, tuple[object, ...]]]:
    """Yield every curve with the first columns of its rows: task, network, method, whether it is augmented."""
    for study in studies:
        for curve in study.curves:
            yield study, curve, (study.task.key, study.task.network, curve.name, int(curve.augmented))


def _curve_rows(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    for _, curve, key in _keys(studies):
        for run, of_run in enumerate(curve.values):
            for size, values in zip(curve.sizes, of_run, strict=True):
                for measure, value in zip(MEASURES, values, strict=True):
                    yield (*key, size, run, measure, repr(float(value)))


def _equivalent_rows(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    """Yield the equivalents; beyond the longest ensemble they are written ``inf``."""
    for study, curve, key in _keys(studies):
        for score in SCORED:
            for size, bounds in zip(curve.sizes, study.equivalents(curve, score), strict=True):
                numbers = [repr(bound.size) for bound in (bounds.lower, bounds.central, bounds.upper)]
                yield (*key, size, score, *numbers, bounds.central.longest)


def _tace_rows(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    for _, curve, key in _keys(studies):
        for run, values in enumerate(curve.tace):
            for (threshold, bins), value in zip(TACE_SETTINGS, values, strict=True):
                yield (*key, curve.samples, threshold, bins, run, repr(float(value)))


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return sink.getvalue()
