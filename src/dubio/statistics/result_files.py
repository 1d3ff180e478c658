"""Tables of results as people keep them: long or wide, one file or one per data set, CSV, Markdown or LaTeX.

Which layout a table has follows from its columns. One that names the method, the metric and the value is *long*. Else
the other columns hold the values: of methods where a column names the data set and none the method, of metrics where
one names the method, of data sets where it names the method and no column is a metric that is known. A file without a
column of data sets is one data set, called like the file.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

from dubio.core.csv_files import restored
from dubio.core.documents import MAX_BYTES, read_document
from dubio.core.errors import BadFile, UnknownName, UserError, listing
from dubio.core.files import reading
from dubio.core.unpacking import open_gzip
from dubio.statistics.choose_metrics import direction_of
from dubio.statistics.result_table import MAX_EXPONENT, Columns, Result, ResultTable, exact

SYNONYMS = {
    "dataset": ("dataset", "datasets", "data_set", "data", "task", "corpus", "benchmark"),
    "method": ("method", "methods", "model", "algorithm", "system", "classifier", "approach", "estimator"),
    "metric": ("metric", "metrics", "measure"),
    "value": ("value", "values", "score", "result"),
    "seed": ("seed", "run", "fold", "repeat", "trial"),
    "block": (),
}
"""What a column may be called, whatever its case, unless its name is given."""

EXAMPLES = (
    "Columns that are read: dataset,method,metric,value (one row per value); dataset,method,accuracy,nll (one column "
    "per metric); dataset,forest,network (one column per method, the metric named by --metric); one file per data set "
    "needs no column dataset."
)

MISSING = ("", "-", "–", "—", "na", "n/a", "nan", "none")
"""Cells without a value, whatever their case."""

UNDEFINED = (*MISSING, "inf", "-inf")
"""Scores of a run that rank nothing: undefined, or infinite."""

OWN = frozenset(("task", "split", "kind", "method", "seed", "member", "metric", "value"))
"""The columns of the results of a run, as dubio writes them: one row per task, split, training and metric."""

NAMED = ("dataset", "method", "seed", "block")
"""The columns that hold names, of which 1 and 1.0 are one."""

LARGEST_WHOLE = 2.0**53
"""Below it a float says which whole number it is."""

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*%?\s*(?:(?:±|\+/-|\().*)?[*†‡]*")
_WHOLE = re.compile(r"(-?(?:0|[1-9]\d{0,15}))\.0+")
_COMMAND = re.compile(r"\\(?:textbf|mathbf|boldsymbol|bm|underline|emph|textit|text|mathrm)\s*\{([^{}]*)\}")
_RULE = re.compile(r"\\(?:top|mid|bottom)rule|\\hline|\\c(?:mid)?(?:rule|line)(?:\([^)]*\))?\{[^}]*\}")


@dataclass(frozen=True)
class Cells:
    """A table as text: what to call it, the names of its columns, and rows with the line or number of each."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Long:
    """A table in the long form: results, notes about what was read, and (dataset, block, where it is said)."""

    results: tuple[Result, ...]
    notes: tuple[str, ...]
    owners: tuple[tuple[str, str, str], ...]


def read_results(
    sources: Any, columns: Columns | None = None, *, metric: str | None = None, kind: str | None = None
) -> ResultTable:
    """Read tables of results.

    Of the results of a run as dubio writes them, those of one kind of split are read, and splits and members of a task
    are averaged: a mean over splits of different kinds would be the score of nothing.

    Args:
        sources: A file (CSV, TSV, Markdown or LaTeX), a data frame, several of these, or data set → one of these.
        columns: What the columns are called; by default :data:`SYNONYMS`.
        metric: The metric of values whose table does not name one.
        kind: The kind of splits (``id`` if omitted), where every table has the columns of a run.

    Raises:
        UserError: For a kind of which there are no scores, or that a table does not have.
        BadFile: For a file that cannot be read, a table of no known layout, a value that is no number.
    """
    if isinstance(sources, Mapping):
        tables = [replace(_cells(source), name=str(name)) for name, source in sources.items()]
    else:
        several = isinstance(sources, Sequence) and not isinstance(sources, str)
        tables = [_cells(source) for source in (sources if several else (sources,))]
    if not tables:
        raise UserError("results: no table is given.")
    columns = columns or Columns()
    own = not columns.chosen.keys() - {"block"} and all(set(table.header) >= OWN for table in tables)
    if kind is not None and not own:
        raise UserError(f"--kind {kind}: only a run, and its results.csv, have kinds of test splits; given another "
                        "table.")  # fmt: skip
    of_run = kind or "id" if own else None
    notes = []
    if of_run is not None:
        pairs = [_of_kind(table, of_run) for table in tables]
        tables, notes = [table for table, _ in pairs], [note for _, note in pairs if note]
    long = [_long(table, columns, metric, len(tables) > 1) for table in tables]
    results = tuple(result for table in long for result in table.results)
    notes += [note for table in long for note in table.notes]
    same = Counter((result.dataset, result.method, result.metric, result.seed) for result in results)
    if repeated := [name for name, count in same.items() if count > 1]:
        dataset, method, named, _ = repeated[0]
        notes.append(f"Several rows give the {named} of {method} on {dataset} ({len(repeated) - 1} more such cells) "
                     "and are averaged; a column seed would tell them apart.")  # fmt: skip
    blocks = _blocks([owner for table in long for owner in table.owners], columns)
    alone = dict.fromkeys(result.dataset for result in results if result.dataset not in blocks)
    if columns.block is not None and alone:
        notes.append(f"Data sets without a value of --block-col {columns.block}, each a block of its own: "
                     f"{listing(alone)}.")  # fmt: skip
    return ResultTable(results, tuple(notes), blocks, of_run)


def _of_kind(table: Cells, kind: str) -> tuple[Cells, str]:
    """Return the defined scores of one kind of split, each with a seed of its own, and a note about the other kinds."""
    index_of = {name: table.header.index(name) for name in OWN}
    columns = [index for index, name in enumerate(table.header) if name not in {"split", "kind", "seed", "member"}]
    rows = [row for row in table.rows if row[1][index_of["kind"]] == kind]
    if not rows:
        raise UserError(f"{table.name}: --kind {kind}: there are no scores on such a split.")
    header = (*(table.header[index] for index in columns), "seed")
    defined = tuple(
        (
            number,
            (
                *(row[index] for index in columns),
                ", ".join(row[index_of[name]] for name in ("split", "seed", "member")),
            ),
        )
        for number, row in rows
        if row[index_of["value"]].lower() not in UNDEFINED
    )
    others = dict.fromkeys(row[index_of["kind"]] for _, row in table.rows if row[index_of["kind"]] != kind)
    note = f"{table.name}: scores on splits of the kind {kind}; others (--kind): {listing(others)}." if others else ""
    return Cells(table.name, header, defined), note


def _blocks(owners: Sequence[tuple[str, str, str]], columns: Columns) -> dict[str, str]:
    """Return dataset → block.

    Args:
        owners: Dataset, its block, and where that is said.
        columns: What the columns are called.

    Raises:
        BadFile: For a data set in two blocks.
    """
    blocks: dict[str, tuple[str, str]] = {}
    for dataset, block, where in owners:
        other, before = blocks.setdefault(dataset, (block, where))
        if other != block:
            raise BadFile(
                f"{where}: --block-col {columns.block}: data set {dataset!r} is in two blocks, "
                f"{other!r} and {block!r}; a data set is in one. The first is in {before}."
            )
    return {dataset: block for dataset, (block, _) in blocks.items()}


# --- text to cells ----------------------------------------------------------------------------------------------------


def _cells(source: Any) -> Cells:
    """Return the cells of a file or data frame."""
    if hasattr(source, "itertuples"):
        frame = source if type(source.index).__name__ == "RangeIndex" else source.reset_index()
        rows = [list(map(_cell_text, row)) for row in frame.itertuples(index=False)]
        return _checked("the data frame", [list(map(str, frame.columns)), *rows], 0)
    if not isinstance(source, str | Path):
        raise UserError("results must be a run, a table (the path of a file, a data frame, several of these, or data "
                        f"set → table); given {type(source).__name__}.")  # fmt: skip
    path = Path(source)
    if not path.is_file():
        raise BadFile(f"table of results {str(path)!r}: no such file.")
    try:
        text = _raw(path).decode("utf-8-sig")  # line ends within a cell stay as they are
        ending = Path(path.name.lower().removesuffix(".gz")).suffix
        rows = list(_READERS.get(ending, _delimited)(text))
    except (UnicodeDecodeError, csv.Error) as fault:
        raise BadFile(f"{path}: not a CSV table in UTF-8: {fault}") from fault
    if not rows:
        raise BadFile(f"{path}: empty; a header and rows are needed. {EXAMPLES}")
    return replace(_checked(str(path), rows, 1), name=str(path))


def _cell_text(value: Any) -> str:
    """Return a value of a data frame as text; empty for None, NaN and pandas' NA, of which no comparison is true.

    Whole numbers are written without decimals: where a cell is missing pandas has floats for them, and the names 1 and
    1.0 are one name.
    """
    if value is None or type(value).__name__ == "NAType" or value != value:
        return ""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_WHOLE
    return str(int(value) if is_whole else value)


def _name_text(cell: str) -> str:
    """Return a name as it is without decimals that say nothing: pandas writes the whole numbers of a gappy column so.

    The names 1 and 1.0 are one name in a file as in a data frame: were they two, one block would count as two.
    """
    match = _WHOLE.fullmatch(cell)
    return str(int(match[1])) if match and abs(int(match[1])) < LARGEST_WHOLE else cell


def _raw(path: Path) -> bytes:
    """Return the bytes of a file, unpacked where it is gzipped."""
    if path.suffix.lower() != ".gz":
        return read_document(path)
    with reading(path), open_gzip(path) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise BadFile(f"{str(path)!r} unpacks to more than {MAX_BYTES} bytes, the most that is read.")
    return raw


def _checked(name: str, rows: Sequence[Sequence[str]], first: int) -> Cells:
    header = tuple(cell.strip() for cell in rows[0])
    numbered = tuple((n, tuple(cell.strip() for cell in row)) for n, row in enumerate(rows[1:], first + 1) if any(row))
    if not numbered:
        raise BadFile(f"{name}: a header but no rows.")
    for number, row in numbered:
        if len(row) != len(header):
            raise BadFile(f"{name}: row {number} has {len(row)} columns; the header has {len(header)}.")
    for column in header:
        if header.count(column) > 1:
            raise BadFile(f"{name}: column {column!r} occurs {header.count(column)} times.")
    return Cells(name, header, numbered)


def _delimited(text: str) -> Iterator[list[str]]:
    """Yield the rows of a table with tabs, semicolons (and then decimal commas) or commas, as its header shows."""
    head = text.partition("\n")[0]
    separator = "\t" if "\t" in head else ";" if ";" in head and "," not in head else ","
    for row in restored(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)):
        yield [re.sub(r"^([+-]?\d+),(\d+)$", r"\1.\2", cell) for cell in row] if separator == ";" else row


def _markdown(text: str) -> Iterator[list[str]]:
    """Yield the rows of the first table with pipes."""
    lines = [line.strip() for line in text.splitlines()]
    start = next((n for n, line in enumerate(lines) if line.startswith("|")), len(lines))
    for line in lines[start:]:
        if not line.startswith("|"):
            return
        cells = [re.sub(r"\*\*|__|`|^\*|\*$", "", cell).strip() for cell in line.strip("|").split("|")]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            yield cells


def _latex(text: str) -> Iterator[list[str]]:
    """Yield the rows of the first tabular; of commands those of fonts, rules and ± are understood."""
    begin = re.search(r"\\begin\{(tabular[x*]?)\}(?:\{[^{}]*\})*", text)
    body = text[begin.end() :].partition(rf"\end{{{begin[1]}}}")[0] if begin else ""
    plain = re.sub(r"(?<!\\)%.*", "", body)
    for line in re.split(r"\\\\(?:\[[^\]]*\])?", _RULE.sub("", plain)):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)&", line)]
        if any(cells):
            yield [_plain(cell) for cell in cells]


def _plain(cell: str) -> str:
    while (inner := _COMMAND.sub(r"\1", cell)) != cell:
        cell = inner
    replaced = cell.replace(r"\pm", "±").replace(r"\uparrow", "↑").replace(r"\downarrow", "↓").replace("~", " ")
    cell = re.sub(r"\\([%&_#$])", r"\1", replaced.replace("$", ""))
    return cell.strip("{} ")


_READERS = {".md": _markdown, ".markdown": _markdown, ".tex": _latex}


# --- cells to results -------------------------------------------------------------------------------------------------


def _long(table: Cells, columns: Columns, metric: str | None, several: bool) -> Long:
    """Return a table in the long form, with notes about what was read and what was not."""
    places = _places(table, columns)
    others = [name for index, name in enumerate(table.header) if index not in places.values()]
    varies, filled = "", [table.header[places["value"]]] if "value" in places else []
    if not filled:
        filled = [name for name in others if _has_numbers(table, name)]
        varies, others = _varying(table, places, filled, several), [name for name in others if name not in filled]
    defaults = {"dataset": Path(table.name).stem, "metric": metric}
    if "method" not in places and varies != "method":
        usual = ", ".join(SYNONYMS["method"])
        raise _unreadable(table, f"no column names the method ({usual}; or name it with --method-col)")
    if metric is None and "metric" not in places and varies != "metric":
        raise _unreadable(table, f"no column names the metric of {listing(filled)}; name it with --metric")
    if "block" in places and varies == "dataset":
        reason = "the columns of this table are its data sets, and a row belongs to all of them"
        raise BadFile(f"{table.name}: --block-col needs one row per data set; {reason}.")
    results, owners = [], []
    for number, row in table.rows:
        cells = {column: row[index] for column, index in places.items()}
        facts = defaults | {column: _name_text(cell) if column in NAMED else cell for column, cell in cells.items()}
        for name in filled:
            value = row[table.header.index(name)]
            if varies and value.lower() in MISSING:
                continue
            cell = facts | ({varies: _name_text(name) if varies in NAMED else name} if varies else {})
            dataset, method, named = (str(cell[column]) for column in ("dataset", "method", "metric"))
            results.append(Result(dataset, method, named, _number(table, number, name, value), cell.get("seed")))
            if str(cell.get("block", "")).lower() not in MISSING:
                owners.append((dataset, str(cell["block"]), f"{table.name}: row {number}"))
    notes = [f"{table.name}: read with one column per {varies}: {listing(filled)}."] if varies else []
    notes += [f"{table.name}: columns that are not used: {listing(others)}."] if others else []
    return Long(tuple(results), tuple(notes), tuple(owners))


def _places(table: Cells, columns: Columns) -> dict[str, int]:
    """Return column → where it is, of the columns that the header has.

    Raises:
        BadFile: For a column that was named and is not there, two that may be meant, or one that is meant twice.
    """
    places: dict[str, int] = {}
    chosen = columns.chosen
    folded = [re.sub(r"[\s-]+", "_", name.lower()) for name in table.header]
    for column, name in vars(columns).items():
        free = [index for index, own in enumerate(table.header) if own not in chosen.values()]
        like = [] if column in chosen else [index for index in free if folded[index] in SYNONYMS[column]]
        if name in table.header:
            places[column] = table.header.index(name)
        elif len(like) > 1:
            names = listing(table.header[index] for index in like)
            raise BadFile(f"{table.name}: columns {names} may all be the {column}; name it with --{column}-col.")
        elif like:
            places[column] = like[0]
        elif column in chosen:
            raise BadFile(f"{table.name}: {UnknownName('column', name, table.header)} Name it with --{column}-col.")
    for one, two in combinations(places, 2):
        if places[one] == places[two]:
            twice = f"column {table.header[places[one]]!r} cannot be both the {one} and the {two}"
            raise BadFile(f"{table.name}: {twice}; name another with --{one}-col or --{two}-col.")
    return places


def _varying(table: Cells, places: Mapping[str, int], filled: Sequence[str], several: bool) -> str:
    """Return what the columns with values are of: metrics, methods or data sets.

    Raises:
        BadFile: When the columns do not say it.
    """
    metrics = [name for name in filled if direction_of(name) is not None]
    if not filled:
        raise _unreadable(table, "no column has numbers")
    if "method" in places:
        if "metric" in places:
            return "dataset"
        if "dataset" in places or several:
            return "metric"
        if metrics:
            raise _unreadable(table, f"the columns {listing(metrics)} are metrics, and no column names the data set; "
                                     "ranks need at least two")  # fmt: skip
        return "dataset"
    if ("dataset" in places or several) and not metrics:
        return "method"
    if metrics:
        raise _unreadable(table, f"the columns {listing(metrics)} are metrics, and no column names the method")
    raise _unreadable(table, "no column names the data set or the method")


def _has_numbers(table: Cells, name: str) -> bool:
    index = table.header.index(name)
    return any(_NUMBER.fullmatch(row[index].replace("−", "-")) for _, row in table.rows)


def _number(table: Cells, number: int, column: str, text: str) -> Fraction:
    """Return the number in a cell; what stands behind ± or in brackets is its spread."""
    match = _NUMBER.fullmatch(text.replace("−", "-"))
    try:
        return exact(match[1] if match else text)
    except ValueError:
        allowed = f"a finite number, 0 or between 1e-{MAX_EXPONENT} and 1e{MAX_EXPONENT} in size"
        raise BadFile(f"{table.name}: row {number}: {column} {text!r:.60} is not {allowed}.") from None


def _unreadable(table: Cells, problem: str) -> BadFile:
    return BadFile(f"{table.name}: {problem}. Its columns are {listing(table.header)}. {EXAMPLES}")
