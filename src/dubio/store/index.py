"""The index: the content of the store as a small SQLite file, derived from its directories.

It can be deleted without loss. It holds no timings and no paths, is written in one order, and has the SHA-256 of every
weights and predictions file: two stores with the same index hold the same results, bit for bit.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from dubio.core.errors import CorruptFile, StoreError
from dubio.core.specs import canonical
from dubio.store.fits import WEIGHTS
from dubio.store.locks import storing
from dubio.store.predictions import members_of
from dubio.store.records import read_record
from dubio.store.store import Store

TABLES = """
CREATE TABLE fits (
  id TEXT PRIMARY KEY, task TEXT, network TEXT, seed INTEGER, member INTEGER, start TEXT, weights TEXT, spec TEXT
) WITHOUT ROWID;
CREATE TABLE predictions (id TEXT PRIMARY KEY, fit TEXT, spec TEXT) WITHOUT ROWID;
CREATE TABLE files (
  prediction TEXT, split TEXT, fingerprint TEXT, sha256 TEXT, PRIMARY KEY (prediction, split, fingerprint)
) WITHOUT ROWID;
CREATE TABLE members (
  prediction TEXT, position INTEGER, member TEXT, PRIMARY KEY (prediction, position)
) WITHOUT ROWID;
CREATE TABLE runs (
  manifest TEXT, task TEXT, network TEXT, method TEXT, seed INTEGER, member INTEGER, prediction TEXT
);
"""


def rebuild(store: Store) -> tuple[str, ...]:
    """Write the index from the content of the store.

    Returns:
        Messages about damaged files, which are not in it.

    Raises:
        StoreError: When it cannot be written.
    """
    fresh = store.scratch.new()
    with storing(store.layout.index):
        try:
            with closing(sqlite3.connect(fresh)) as base, base:
                damaged = _fill(base, store)
        except sqlite3.OperationalError as fault:  # a full disk, most often: SQLite has errors of its own for it
            raise StoreError(f"cannot write {str(store.layout.index)!r}: {fault}.") from fault
        store.scratch.adopt(fresh, store.layout.index)
    return damaged


def _fill(base: sqlite3.Connection, store: Store) -> tuple[str, ...]:
    """Insert every fit, prediction and run into an empty database; return messages about damaged ones."""
    base.executescript(TABLES)
    damaged = []
    for insert, names in (
        (_insert_fit, store.ids("fits")),
        (_insert_prediction, store.ids("predictions")),
        (_insert_runs, store.manifests()),
    ):
        for name in names:
            try:
                insert(base, store, name)
            except CorruptFile as fault:
                damaged.append(str(fault))
    return tuple(damaged)


def dump(store: Store) -> str:
    """Return the index as SQL text, for comparing two stores."""
    with closing(sqlite3.connect(f"{store.layout.index.as_uri()}?mode=ro", uri=True)) as base:
        return "\n".join(base.iterdump())


def _insert_fit(base: sqlite3.Connection, store: Store, fit_id: str) -> None:
    spec = store.spec("fits", fit_id)
    weights = read_record(store.layout.directory("fits", fit_id))["files"][WEIGHTS]["sha256"]
    facts = (spec["task"]["name"], spec["network"]["name"], spec["seed"], spec["member"], spec["start"])
    text = canonical(spec).decode()
    base.execute("INSERT INTO fits VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (fit_id, *facts, weights, text))


def _insert_prediction(base: sqlite3.Connection, store: Store, pred_id: str) -> None:
    spec = store.spec("predictions", pred_id)
    members = members_of(spec)
    files = {} if members else read_record(store.layout.directory("predictions", pred_id))["files"]
    rows = sorted((pred_id, file["split"], file["fingerprint"], file["sha256"]) for file in files.values())
    base.execute("INSERT INTO predictions VALUES (?, ?, ?)", (pred_id, spec.get("fit"), canonical(spec).decode()))
    base.executemany("INSERT INTO members VALUES (?, ?, ?)", [(pred_id, k, m) for k, m in enumerate(members)])
    base.executemany("INSERT INTO files VALUES (?, ?, ?, ?)", rows)


def _insert_runs(base: sqlite3.Connection, store: Store, name: str) -> None:
    keys = ("task", "network", "method", "seed", "member", "id")
    rows = [(name, *(run[key] for key in keys)) for run in store.manifest(name)["runs"]]
    base.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
