"""Damage to Parquet: columns, types, names, metadata, dictionaries, footer."""

from __future__ import annotations

import functools
import io
import struct
from random import Random
from typing import Any

import numpy as np

from campaigns.mutators.arrays import VALUES
from campaigns.mutators.documents import HOSTILE_NUMBERS, HOSTILE_TEXTS
from campaigns.mutators.raw import any_bytes


def mutate_parquet(rng: Random, raw: bytes) -> bytes:
    """Change columns, types, names, metadata, encodings and footer of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    choice = rng.random()
    if choice < 0.25:
        return _damage_footer(rng, raw)
    if choice < 0.4:
        return any_bytes(rng, raw)
    table = pq.read_table(io.BytesIO(raw))
    if choice < 0.415:
        names = tuple(table.column_names)
        return _large(
            rng.choice((names, names[:2])), rng.choice((2_000_000, 8_000_000)), rng.choice(("", "x", "x" * 100))
        )
    place = rng.randrange(table.num_columns)
    if choice < 0.75:
        table = table.set_column(place, table.column_names[place], _column(rng, table.column(place)))
    elif choice < 0.9:
        others = (*HOSTILE_TEXTS, "label", "p0", "p99999999", "id", "group", "sample", "member", *table.column_names)
        columns = list(table.column_names)
        columns[place] = rng.choice(others)
        table = table.rename_columns(columns)
    else:
        ways = (
            lambda: table.slice(0, 0),
            lambda: table.remove_column(place),
            lambda: pa.concat_tables([table] * 20),
            lambda: table.slice(0, 1),
            lambda: table.replace_schema_metadata(
                {rng.choice(HOSTILE_TEXTS): rng.choice(HOSTILE_TEXTS), "pandas": rng.choice(("{", "[]", "{}"))}
            ),
        )
        table = rng.choice(ways)()
    written = _parquet_bytes(rng, table)
    return _break_texts(rng, written) if rng.random() < 0.15 else written


def _parquet_bytes(rng: Random, table: Any) -> bytes:
    import pyarrow.parquet as pq

    if not table.num_columns:
        return b"PAR1"
    target = io.BytesIO()
    pq.write_table(
        table,
        target,
        compression=rng.choice(("snappy", "gzip", "zstd", "none", "brotli")),
        use_dictionary=rng.random() < 0.7,
        row_group_size=rng.choice((1, 7, 10**6)) if table.num_rows < 1000 else None,
        data_page_version=rng.choice(("1.0", "2.0")),
    )
    return target.getvalue()


def _column(rng: Random, column: Any) -> Any:
    """Return a column of another type or with other values."""
    import pyarrow as pa

    rows = len(column)
    number = rng.randrange(rows)
    ways = (
        lambda: pa.nulls(rows),
        lambda: pa.array([None] * (rows - 1) + [1.0]),
        lambda: pa.array([[0.1, 0.9]] * rows),
        lambda: pa.array([[0.1] * (k % 3) for k in range(rows)]),
        lambda: pa.array([{"a": 1}] * rows),
        lambda: pa.array([b"\xff\xfe\x00"] * rows),
        lambda: pa.array([b"\xed\xa0\x80"] * rows).view(pa.string()),
        lambda: pa.array([b"\xff"] * rows).view(pa.string()),
        lambda: pa.array(["a", "b"][k % 2] for k in range(rows)).dictionary_encode(),
        lambda: pa.array([True, False] * rows)[:rows],
        lambda: pa.array([10**15] * rows, pa.decimal128(38, 2)),
        lambda: pa.array([2**62] * rows, pa.timestamp("us")),
        lambda: pa.array([2**62] * rows, pa.duration("s")),
        lambda: pa.array([-(2**31)] * rows, pa.date32()),
        lambda: pa.array([1] * rows, pa.time32("s")),
        lambda: pa.array([2**64 - 1] * rows, pa.uint64()),
        lambda: pa.array([rng.choice(VALUES)] * rows),
        lambda: pa.array([rng.choice(VALUES) if k == number else 0.5 for k in range(rows)]),
        lambda: pa.array([rng.choice(HOSTILE_TEXTS)] * rows),
        lambda: pa.array([rng.choice(HOSTILE_TEXTS) for _ in range(rows)]),
        lambda: pa.array(np.full(rows, 0.5, np.float16)),
        lambda: pa.array([rng.choice(HOSTILE_NUMBERS)] * rows),
        lambda: pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([[[0.5]]] * rows),
        lambda: pa.array(["x" * 100_000] * rows),
        lambda: pa.array([str(k) for k in range(rows)]).cast("large_string"),
    )
    return rng.choice(ways)()


@functools.cache
def _large(names: tuple[str, ...], rows: int, text: str) -> bytes:
    """Return very many equal rows, of numbers where there is no text: kilobytes in the file, gigabytes as columns."""
    import pyarrow as pa

    value = pa.array([text]) if text else pa.array([0.5])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), value)
    return _parquet_bytes(Random(rows), pa.table(dict.fromkeys(names, column)))


def _damage_footer(rng: Random, raw: bytes) -> bytes:
    length = struct.unpack("<I", raw[-8:-4])[0]
    start = len(raw) - 8 - length
    if rng.random() < 0.1:
        return raw[:-8] + struct.pack("<I", rng.choice((0, 1, length - 1, length + 1, 2**31, 2**32 - 1))) + raw[-4:]
    return raw[:start] + any_bytes(rng, raw[start:-8])[:length].ljust(length, b"\x00") + raw[-8:]


def _break_texts(rng: Random, raw: bytes) -> bytes:
    """Put bytes that are no UTF-8 into a name of the file."""
    for name in (b"label", b"p0", b"schema", b"text"):
        if name in raw and rng.random() < 0.6:
            return raw.replace(name, rng.choice((b"\xff", b"\xed", b"\xc3")) * 2 + name[2:])
    return raw
