"""Documents as JSON lines: objects with ``split``, ``text``, ``labels`` and sometimes ``id`` and ``domain``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile
from dubio.tasks.sources.corpus import Document

AS_IT_IS: Mapping[str, str] = {"train": "train", "val": "val", "test": "test"}


def jsonl_finder(name: str) -> Callable[[Path], Path | None]:
    """Looks for one file, gzipped or not."""

    def find(folder: Path) -> Path | None:
        return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)

    return find


def jsonl_reader(
    parts: Mapping[str, str] = AS_IT_IS, *, label: Callable[[str], str] = str
) -> Callable[[Path], list[Document]]:
    """Reads such a file.

    Args:
        parts: The file's splits and the parts they are; a split that is not named keeps its name.
        label: What a label's name becomes.
    """

    def read(path: Path) -> list[Document]:
        return [_document(row, f"{path.name}, line {number}", parts, label) for number, row in _rows(path)]

    return read


def _rows(path: Path) -> list[tuple[int, Any]]:
    rows = []
    number = 1
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    rows.append((number, json.loads(line)))
    except (OSError, EOFError, ValueError) as fault:
        raise BadFile(f"{path.name}, line {number}: not JSON lines: {fault}.") from fault
    return rows


def _document(row: Any, place: str, parts: Mapping[str, str], label: Callable[[str], str]) -> Document:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not isinstance(row.get("labels"), list):
        raise BadFile(f"{place}: a document is an object with a text 'text' and a list 'labels'.")
    split = str(row.get("split", ""))
    return Document(
        part=parts.get(split, split),
        text=row["text"],
        labels=tuple(label(str(name)) for name in row["labels"]),
        id=str(row.get("id", "")),
        domain=str(row.get("domain", "")),
    )
