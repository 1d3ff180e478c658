"""Tables in P's layout, on the page and as files, and every curve as long tables.

Rows are networks with their numbers of samples, columns methods, one table per score. Tables 4–6 of P hold mean ±
standard deviation over runs without augmentation, Tables 1 and 7–9 the values without and with test-time augmentation.
A method without that number of samples leaves its cell empty; a method of one sample, the single network or mean
weights, has its one value in every row, as in P.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dubio.core.csv_files import CsvTable
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

    def cell(self, curve: SampleCurve | None, size: int) -> Cell | None:
        """Return the values of a method with this number of samples, as the tables show them."""
        cell = None if curve is None else curve.at(self.measure, size)
        return None if cell is None else Cell(tuple(self.factor * value for value in cell.values))


SCORES = (
    PaperScore("error", "Error (%)", 100.0, 2),
    PaperScore("calibrated_nll", "Calibrated NLL (negative calibrated log-likelihood)", 1.0, 3),
    PaperScore("calibrated_brier", "Calibrated Brier", 1.0, 3),
    PaperScore("calibrated_aurc", "Calibrated AURC", 1.0, 4),
)
"""The four scores of P's tables, with their decimals there."""

FIRST = ("task", "network", "method", "augmented", "samples")
"""The first columns of the long tables."""


def sample_tables(studies: Sequence[Study]) -> dict[str, list[Table]]:
    """Return data set → P Tables 4–6: a row per network and number of samples, a column per method."""
    return {
        corpus: [_samples_table(own, score, f"{score.title} on {corpus}") for score in SCORES]
        for corpus, own in _by_corpus(studies).items()
    }


def augmentation_tables(studies: Sequence[Study]) -> dict[str, list[Table]]:
    """Return data set → P Tables 1 and 7–9: the same with cells “without vs with augmentation”, where there is any."""
    augmented = [study for study in studies if any(curve.augmented for curve in study.curves)]
    title = "{} on {}, without vs with augmentation"
    return {
        corpus: [_augmentation_table(own, score, title.format(score.title, corpus)) for score in SCORES]
        for corpus, own in _by_corpus(augmented).items()
    }


def _by_corpus(studies: Sequence[Study]) -> dict[str, list[Study]]:
    """Return data set → its studies, with other networks."""
    grouped: dict[str, list[Study]] = {}
    for study in studies:
        grouped.setdefault(study.task.corpus or study.task.name, []).append(study)
    return grouped


def _table(
    studies: Sequence[Study],
    columns: Mapping[str, str],
    cells: Callable[[Study, int], Iterable[TableCell]],
    caption: str,
    title: str,
) -> Table:
    """Return one table: a row for each network and every number of samples that some method reaches."""
    rows = []
    for study in studies:
        reached = {size for curve in study.curves if curve.base in columns for size in curve.sizes}
        for size in (size for size in SIZES if size in reached):
            name = f"{study.task.network} ({size} {'sample' if size == 1 else 'samples'})"
            rows.append(Row(name, tuple(cells(study, size))))
    return Table(tuple(map(Column, columns.values())), tuple(rows), caption, "Network (samples)", title)


def _samples_table(studies: Sequence[Study], score: PaperScore, title: str) -> Table:
    columns = {curve.name: curve.title for study in studies for curve in study.curves if not curve.augmented}

    def cells(study: Study, size: int) -> Iterator[TableCell]:
        values = [score.cell(study.by_name.get(name), size) for name in columns]
        best = min((cell.mean for cell in values if cell is not None), default=None)
        return (spread_cell(cell, score.places, "leading" if cell and cell.mean == best else "") for cell in values)

    caption = f"{score.title}: mean ± standard deviation over runs, for deep ensembles over random orders"
    return _table(studies, columns, cells, caption, title)


def _augmentation_table(studies: Sequence[Study], score: PaperScore, title: str) -> Table:
    augmented = [c for study in studies for c in study.curves if study.with_augmentation(c) is not None]
    columns = {curve.name: curve.title for curve in augmented}

    def cells(study: Study, size: int) -> Iterator[TableCell]:
        for name in columns:
            curve = study.by_name.get(name)
            other = None if curve is None else study.with_augmentation(curve)
            yield _versus(score.cell(curve, size), score.cell(other, size), score.places)

    caption = f"{score.title}: augmentation lowers (↓) or raises (↑) it; ≈: the same in all digits shown"
    return _table(studies, columns, cells, caption, title)


def spread_cell(cell: Cell | None, places: int, verdict: str = "") -> TableCell:
    """Return a mean with its spread over runs."""
    if cell is None:
        return EMPTY
    spread = "" if cell.std is None else f"± {cell.std:.{places}f}"
    return TableCell(f"{cell.mean:.{places}f}", spread, f"{cell.mean:.9g}", verdict, f"over {cell.n} runs")


def _versus(plain: Cell | None, augmented: Cell | None, places: int) -> TableCell:
    if plain is None or augmented is None:
        return EMPTY
    one, other = (f"{cell.mean:.{places}f}" for cell in (plain, augmented))
    sign = "≈" if one == other else "↓" if float(other) < float(one) else "↑"
    return TableCell(f"{one} vs {other}{sign}", sort_key=f"{augmented.mean:.9g}")


def table_files(studies: Sequence[Study]) -> dict[str, str | CsvTable]:
    """Return file name → content for every table of the study; none without a study."""
    if not studies:
        return {}
    bounds = ("score", "lower", "equivalent", "upper", "longest")
    files: dict[str, str | CsvTable] = {
        "ensembles-curves.csv": CsvTable((*FIRST, "run", "measure", "value"), [*_curve_rows(studies)]),
        "ensembles-equivalents.csv": CsvTable((*FIRST, *bounds), [*_equivalent_rows(studies)]),
        "ensembles-tace.csv": CsvTable((*FIRST, "threshold", "bins", "run", "tace"), [*_tace_rows(studies)]),
    }
    for kind, by_corpus in (("samples", sample_tables(studies)), ("augmentation", augmentation_tables(studies))):
        for corpus, tables in by_corpus.items():
            name = f"{file_name(corpus)}-by-{kind}"
            files[f"{name}.md"] = "\n".join(map(_markdown, tables))
            # the same tables one below the other, with the score in the first column
            heads = ("score", tables[0].first, *(column.title for column in tables[0].columns))
            rows = [(table.title, *_texts(row)) for table in tables for row in table.rows]
            files[f"{name}.csv"] = CsvTable(heads, rows)
    return files


def _texts(row: Row) -> list[str]:
    return [row.title, *("" if cell is EMPTY else cell.plain for cell in row.cells)]


def _markdown(table: Table) -> str:
    """Return a table with its title and caption."""
    heads = [table.first, *(column.title for column in table.columns)]
    lines = [[text.replace("|", "\\|") for text in texts] for texts in (heads, *map(_texts, table.rows))]
    first, *rows = (f"| {' | '.join(texts)} |" for texts in lines)
    title = table.title.replace("|", "\\|")
    return "\n".join([f"### {title}", "", first, f"|{'---|' * len(heads)}", *rows, "", f"{table.caption}.", ""])


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
                    yield (*key, size, run, measure, float(value))


def _equivalent_rows(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    """Yield the equivalents; beyond the longest ensemble they are written ``inf``."""
    for study, curve, key in _keys(studies):
        for score in SCORED:
            for size, bounds in zip(curve.sizes, study.equivalents(curve, score), strict=True):
                numbers = [bound.size for bound in (bounds.lower, bounds.central, bounds.upper)]
                yield (*key, size, score, *numbers, bounds.central.longest)


def _tace_rows(studies: Sequence[Study]) -> Iterator[tuple[object, ...]]:
    for _, curve, key in _keys(studies):
        for run, values in enumerate(curve.tace):
            for (threshold, bins), value in zip(TACE_SETTINGS, values, strict=True):
                yield (*key, curve.samples, threshold, bins, run, float(value))
