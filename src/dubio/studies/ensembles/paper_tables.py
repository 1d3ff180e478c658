"""Tables in P's layout: networks with their samples down, methods across, one block a score.

Tables 4–6 of P hold mean ± standard deviation over runs without augmentation, Tables 1 and 7–9 the values without and
with test-time augmentation side by side. A method that has not so many samples leaves its place empty; what has one
sample, the single network or mean weights, stands with its one value in every row, as in P.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dubio.reporting.aggregate import Cell
from dubio.reporting.tables import EMPTY, Column, Row, Table, TableCell
from dubio.studies.ensembles.prefixes import SIZES
from dubio.studies.ensembles.study import Line, Study


@dataclass(frozen=True)
class Block:
    """A score as the tables show it: its measure, its title, what it is multiplied with and its decimals."""

    measure: str
    title: str
    factor: float
    places: int


BLOCKS = (
    Block("error", "Error (%)", 100.0, 2),
    Block("calibrated_nll", "Calibrated NLL (negative calibrated log-likelihood)", 1.0, 3),
    Block("calibrated_brier", "Calibrated Brier", 1.0, 3),
    Block("calibrated_aurc", "Calibrated AURC", 1.0, 4),
)
"""The four scores of P's tables, with as many decimals."""


@dataclass(frozen=True)
class PaperTable:
    """One block of a table: what corpus and layout it belongs to, and the grid."""

    corpus: str
    title: str
    grid: Table


def by_corpus(studies: Sequence[Study]) -> dict[str, list[Study]]:
    """Studies of the same data with other networks, together."""
    found: dict[str, list[Study]] = {}
    for study in studies:
        found.setdefault(study.task.corpus or study.task.name, []).append(study)
    return found


def sample_tables(studies: Sequence[Study]) -> list[PaperTable]:
    """P Tables 4–6: a block a score, a row a network and number of samples, a column a method."""
    return [
        PaperTable(corpus, f"{block.title} on {corpus}", _samples_grid(own, block))
        for corpus, own in by_corpus(studies).items()
        for block in BLOCKS
    ]


def augmentation_tables(studies: Sequence[Study]) -> list[PaperTable]:
    """P Tables 1 and 7–9: the same with every cell “without vs with augmentation”; none where nothing has a twin."""
    found = []
    for corpus, own in by_corpus(studies).items():
        twins = [study for study in own if any(line.augmented for line in study.lines)]
        if twins:
            title = f"{{}} on {corpus}, without vs with augmentation"
            found += [PaperTable(corpus, title.format(block.title), _augmented_grid(twins, block)) for block in BLOCKS]
    return found


def _samples_grid(studies: Sequence[Study], block: Block) -> Table:
    columns = _columns(studies, twins=False)
    rows = []
    for study, size in _places(studies, columns):
        cells = [_cell(study.by_name.get(name), block, size) for name in columns]
        best = min((cell.mean for cell in cells if cell is not None), default=None)
        rows.append(Row(_row_title(study, size), tuple(_shown(cell, block.places, best) for cell in cells)))
    caption = f"{block.title}: mean ± standard deviation over runs, of deep ensembles over random orders of one pool"
    return Table(tuple(Column(title) for title in columns.values()), tuple(rows), caption, "Network (samples)")


def _augmented_grid(studies: Sequence[Study], block: Block) -> Table:
    columns = _columns(studies, twins=True)
    rows = []
    for study, size in _places(studies, columns):
        shown = []
        for name in columns:
            line = study.by_name.get(name)
            twin = None if line is None else study.twin(line)
            shown.append(_versus(_cell(line, block, size), _cell(twin, block, size), block.places))
        rows.append(Row(_row_title(study, size), tuple(shown)))
    caption = f"{block.title}: ↓ and ↑ say that augmentation lowers or raises it, ≈ that the shown digits are the same"
    return Table(tuple(Column(title) for title in columns.values()), tuple(rows), caption, "Network (samples)")


def _columns(studies: Sequence[Study], *, twins: bool) -> dict[str, str]:
    """Names and titles of the methods without augmentation that some study has, with a twin where that is asked for."""
    return {
        line.name: line.title
        for study in studies
        for line in study.lines
        if not line.augmented and (not twins or study.twin(line) is not None)
    }


def _places(studies: Sequence[Study], columns: dict[str, str]) -> list[tuple[Study, int]]:
    """Networks with every number of samples that some method has."""
    found = []
    for study in studies:
        reached = {size for line in study.lines if line.base in columns for size in line.sizes}
        found += [(study, size) for size in SIZES if size in reached]
    return found


def _row_title(study: Study, size: int) -> str:
    return f"{study.task.network} ({size} {'sample' if size == 1 else 'samples'})"


def _cell(line: Line | None, block: Block, size: int) -> Cell | None:
    cell = None if line is None else line.at(block.measure, size)
    return None if cell is None else Cell(tuple(block.factor * value for value in cell.values))


def _shown(cell: Cell | None, places: int, best: float | None) -> TableCell:
    if cell is None:
        return EMPTY
    spread = "" if cell.std is None else f"± {cell.std:.{places}f}"
    place = "leading" if cell.mean == best else ""
    return TableCell(f"{cell.mean:.{places}f}", spread, f"{cell.mean:.9g}", place, f"over {cell.n} runs")


def _versus(without: Cell | None, augmented: Cell | None, places: int) -> TableCell:
    if without is None or augmented is None:
        return EMPTY
    one, other = (f"{cell.mean:.{places}f}" for cell in (without, augmented))
    sign = "≈" if one == other else "↓" if float(other) < float(one) else "↑"
    return TableCell(f"{one} vs {other}{sign}", sort=f"{augmented.mean:.9g}")
