"""Examples of a split: texts, table rows and small images of some of its rows, for reports that have the store alone.

``examples/<fingerprint>/<SHA-256>.json`` has the rows that one run added, under the hash of its content. A file never
changes, and what is read is the union of all: runs that share a split add to it without waiting for each other. Earlier
versions stored images alone, as ``pictures/<fingerprint>/<row>.png``; they are read too.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.files import reading
from dubio.core.specs import ID, check_id, hash_file
from dubio.core.validate import decode
from dubio.store.records import Layout, json_bytes, read_json

Content = str | bytes | Mapping[str, str]
"""The content of an example: a text, a PNG image, or column → value of a table row."""

LONGEST_TEXT = 600
"""Characters of a text that are stored and shown."""

LONGEST_CELL = 60
"""Characters of a value in a table row, and of the name of its column."""

MOST_CELLS = 40
"""Columns of a table row; the first ones are stored."""

PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a PNG file; other files are not pictures of a store."""

ROW = re.compile("[0-9]{1,18}")
"""The number of a row as a key or the name of a file."""


@dataclass(frozen=True)
class StoredExamples:
    """One file of examples: row → text, → pairs of column and value, → PNG image as base64."""

    texts: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)


def shortened(content: Content) -> Content:
    """Return the content with texts cut at their longest and table rows at their last column; images stay."""
    if isinstance(content, str):
        return cut(content, LONGEST_TEXT)
    if isinstance(content, bytes):
        return content
    return {cut(name, LONGEST_CELL): cut(value, LONGEST_CELL) for name, value in list(content.items())[:MOST_CELLS]}


def cut(text: str, longest: int) -> str:
    """Return a text with at most this number of characters, of which the last says that there are more."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def encode_examples(contents: Mapping[int, Content]) -> bytes:
    """Return the file of these examples; equal examples give equal bytes."""
    document: dict[str, dict[str, object]] = {"texts": {}, "tables": {}, "images": {}}
    for row, content in contents.items():
        if isinstance(content, str):
            document["texts"][str(row)] = content
        elif isinstance(content, bytes):
            document["images"][str(row)] = b64encode(content).decode("ascii")
        else:
            document["tables"][str(row)] = [[name, value] for name, value in content.items()]
    return json_bytes(document)


def read_examples_file(path: Path) -> dict[int, Content]:
    """Return the examples in a file by row.

    Raises:
        CorruptFile: When its content is not that under whose hash it was written, or is none of examples.
        StoreError: When the disk cannot be read.
    """
    document = read_json(path)
    with reading(path, StoreError):
        digest = hash_file(path)
    if path.stem != digest:
        raise CorruptFile(f"{path}: its content is not what was written.")
    try:
        stored = decode(StoredExamples, document)
        contents: dict[int, Content] = {_row(row): text for row, text in stored.texts.items()}
        contents |= {_row(row): dict(cells) for row, cells in stored.tables.items()}
        contents |= {_row(row): _image(image) for row, image in stored.images.items()}
    except (UserError, ValueError) as fault:
        raise CorruptFile(f"{path}: no examples of a split: {fault}") from fault
    return {row: shortened(content) for row, content in contents.items()}


def _row(name: str) -> int:
    if not ROW.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is no number of a row.")
    return int(name)


def _image(text: str) -> bytes:
    try:
        image = b64decode(text, validate=True)
    except NotBase64 as fault:
        raise ValueError(f"an image is not base64: {fault}.") from fault
    if not image.startswith(PNG):
        raise ValueError("an image is not PNG.")
    return image


def read_examples(layout: Layout, fingerprint: str) -> dict[int, Content]:
    """Return the examples of a split by row, in order; empty where there are none. Damaged files are left out."""
    contents: dict[int, Content] = {}
    for path in sorted((layout.pictures / check_id(fingerprint)).glob("*.png")):
        with reading(path, StoreError):
            content = path.read_bytes()
        if ROW.fullmatch(path.stem) and content.startswith(PNG):
            contents[int(path.stem)] = content
    for path in sorted((layout.examples / fingerprint).glob("*.json")):
        try:
            contents |= read_examples_file(path)
        except CorruptFile:
            continue  # `dubio store verify` names it
    return dict(sorted(contents.items()))


def examples_file(layout: Layout, fingerprint: str, content: bytes) -> Path:
    """Return where a file of examples with this content stands."""
    return layout.examples / check_id(fingerprint) / f"{sha256(content).hexdigest()}.json"


def example_files(layout: Layout, fingerprints: Iterable[str] | None = None) -> list[Path]:
    """Return the files of the examples of these splits, or of all."""
    paths = [*layout.pictures.glob("*/*.png"), *layout.examples.glob("*/*.json")]
    names = None if fingerprints is None else frozenset(fingerprints)
    return sorted(p for p in paths if ID.fullmatch(p.parent.name) and (names is None or p.parent.name in names))
