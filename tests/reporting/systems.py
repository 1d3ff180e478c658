"""Systems of constructed predictions: on the same examples, of any target, as predictions and as files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import Target
from dubio.reporting.build import Report
from dubio.reporting.section import Block, Cards, Definitions, Figure, Headline, Text
from dubio.reporting.tables import Table

SKILLS = {"a": 2.2, "b": 1.6, "c": 1.5}


def system(
    rows: int, skill: float, *, seed: int = 0, classes: int = 3, target: Target = "multiclass", samples: int = 1,
    labels: bool = True, **columns: Any,
) -> Predictions:  # fmt: skip
    """Logits of unit noise with the true class, or labels, raised by a skill; labels depend on the rows alone."""
    truth_of, noise = np.random.default_rng(rows), np.random.default_rng([seed, rows])
    logits = noise.normal(size=(samples, rows, classes)).astype(np.float32)
    if target == "multilabel":
        truth = (truth_of.random((rows, classes)) < 0.4).astype(np.int64)
        return Predictions(logits + np.float32(skill) * (2 * truth - 1), truth, target=target, **columns)
    truth = truth_of.integers(0, classes, rows)
    logits[:, np.arange(rows), truth] += np.float32(skill)
    return Predictions(logits, truth if labels else np.full(rows, -1), target=target, **columns)


def systems(rows: int, names: Iterable[str] = "ab", *, harder: float = 0.0, **options: Any) -> dict[str, Predictions]:
    """Some of the systems on the same examples; ``harder`` ones lower every skill."""
    return {name: system(rows, SKILLS[name] - harder, seed=ord(name), **options) for name in names}


def named_rows(rows: int, prefix: str) -> dict[str, Any]:
    """Ids, groups of two rows and a column of two sites."""
    numbers = np.arange(rows)
    return {
        "ids": np.array([f"{prefix}{number}" for number in numbers]),
        "group": np.array([f"{prefix}{number // 2}" for number in numbers]),
        "columns": {"site": np.array(["north", "south"])[numbers % 2]},
    }


def write_npz(path: Path, own: Predictions) -> Path:
    texts = {"ids": own.ids, "group": own.group} | {f"column.{name}": text for name, text in own.columns.items()}
    np.savez(
        path, logits=own.logits, labels=own.labels, **{name: text for name, text in texts.items() if text is not None}
    )
    return path


def write_rows(path: Path, own: Predictions) -> Path:
    """Write the first sample as a table: CSV, JSON Lines or Parquet, by the ending."""
    columns: dict[str, list[Any]] = {f"logit{k}": own.logits[0, :, k].tolist() for k in range(own.class_count)}
    columns["label"] = own.labels.tolist()
    if own.ids is not None:
        columns["id"] = own.ids.tolist()
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(columns))
            writer.writeheader()
            writer.writerows(rows)
    return path


def every_block(report: Report) -> dict[str, tuple[Block, ...]]:
    """Every block of a report, by its section: of the tasks, and of the whole."""
    return {
        placed.name: tuple(block for task in (*report.tasks, None) for block in report.blocks(placed, task))
        for placed in report.sections
    }


def words_of(blocks: Iterable[Block]) -> list[str]:
    """Every text of blocks that a reader sees, without the titles of rows and the cells."""
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, Headline):
            texts.append(block.text)
        if isinstance(block, Text):
            texts += [block.title, *([block.text] if isinstance(block.text, str) else block.text)]
        if isinstance(block, Table):
            texts += [block.title, block.caption, block.first, block.terminal]
            texts += [text for column in block.columns for text in (column.title, column.sub, column.note)]
            texts += [cell.hint for row in block.rows for cell in row.cells]
        if isinstance(block, Figure):
            texts += [block.title, block.caption, block.reading]
        if isinstance(block, Cards):
            texts += [text for card in block.cards for text in (card.title, *card.texts, *card.evidence)]
        if isinstance(block, Definitions):
            texts += [text for row in block.rows for text in row]
    return texts
