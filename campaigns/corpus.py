"""The corpus: every file that once broke dubio, with the command that read it and the outcome that is right.

An entry is a folder of ``tests/corpus`` with ``case.json`` and the damaged file; what the command needs beside it are
the valid files of its reader. A file too large to keep is named by a generator instead. ``campaigns.fuzz`` writes the
cases that fail in the same form, so that one is added by copying its folder and stating the outcome.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from campaigns import seeds, store_seeds
from campaigns.cases import Case, action_title
from campaigns.mutators.arrays import zip_bomb
from campaigns.mutators.raw import deflated_zeros, gzip_bomb
from campaigns.reader import Action
from campaigns.readers import BY_NAME

FOLDER = Path(__file__).parents[1] / "tests" / "corpus"
FACTS = "case.json"
_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """An entry of the corpus.

    Attributes:
        reader: The reader.
        command: The command, or the name of the function.
        damaged: The damaged file; ids of a store are written ``*``.
        failure: What once happened.
        outcome: What is right: ``read`` (exit 0), ``refused`` (2) or ``reported`` (1, of a store).
        generator: Makes the file where it is not kept.
    """

    reader: str
    command: str
    damaged: str
    failure: str
    outcome: str = "refused"
    generator: str = ""

    @property
    def exits(self) -> tuple[int, ...]:
        """Return the exit codes that are right."""
        return {"read": (0,), "refused": (2,), "reported": (1,), "any": (0, 1, 2)}[self.outcome]


def write_entry(case: Case, failure: str, folder: Path) -> Path:
    """Write a case as an entry of a corpus; the outcome is left to be stated."""
    title = re.sub(r"[^a-z0-9]+", "-", f"{case.reader.name} {failure.split(': ')[-1]} {case.number}".lower()).strip("-")
    place = folder / title
    place.mkdir(parents=True, exist_ok=True)
    facts = {
        "reader": case.reader.name,
        "command": case.title,
        "damaged": _ID.sub("*", case.damaged),
        "failure": failure,
    }
    (place / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (place / Path(case.damaged).name).write_bytes(case.tree[case.damaged])
    return place


def read_entries(folder: Path = FOLDER) -> dict[str, Entry]:
    """Return the entries of a corpus by their names."""
    paths = sorted(folder.glob(f"*/{FACTS}"))
    return {path.parent.name: Entry(**json.loads(path.read_text(encoding="utf-8"))) for path in paths}


def entry_case(name: str, entry: Entry, folder: Path = FOLDER) -> Case:
    """Return the case of an entry."""
    reader = BY_NAME[entry.reader]
    actions: dict[str, Action] = {action_title(action): action for action in reader.actions}
    action = actions.get(entry.command, entry.command)
    for tree in reader.trees():
        files = [path for path in tree if fnmatch(path, entry.damaged)]
        if files:
            kept = [path for path in (folder / name).iterdir() if path.name != FACTS]
            raw = GENERATORS[entry.generator]() if entry.generator else kept[0].read_bytes()
            damaged = {**tree, files[0]: raw}
            return Case(0, reader, reader.repair(damaged, files[0]) if reader.repair else damaged, files[0], action)
    raise ValueError(f"{name}: no valid file matches {entry.damaged}")


def _constant_parquet() -> bytes:
    """Return 20 million equal rows of a user's own data, some kilobytes as Parquet."""
    import numpy as np
    import pyarrow as pa

    rows = pa.array(np.zeros(20_000_000, np.int8))
    values = {"text": "a text of some words", "label": "yes"}
    return seeds.parquet({n: pa.DictionaryArray.from_arrays(rows, pa.array([v])) for n, v in values.items()})


def _long_manifest() -> bytes:
    """Return a manifest that lists its runs a thousand times."""
    (raw,) = (raw for path, raw in store_seeds.store_tree().items() if fnmatch(path, "store/runs/*.json"))
    manifest = {key: value for key, value in json.loads(raw).items() if key != "seal"}
    return json.dumps({**manifest, "runs": manifest["runs"] * 1000}).encode()


GENERATORS: dict[str, Callable[[], bytes]] = {
    "npz of 3 GB, declared": lambda: zip_bomb("probs.npy", 3000, 3000 << 20),
    "npz of 3 GB, declared as 1 kB": lambda: zip_bomb("x.npy", 3000, 1000),
    "npz of 3 GB of own data": lambda: zip_bomb("x.npy", 3000, 3000 << 20),
    "gzip TSV of 3 GB": lambda: gzip_bomb(seeds.delimited(seeds.own_rows(), "\t"), 3000, b"1"),
    "gzip JSON Lines of 1 GB of numbers": lambda: gzip_bomb(
        seeds.json_lines([{"text": "a", "labels": []}]), 500, b"1\n"
    ),
    "kept page of 3 GB": lambda: b"\x78\x9c" + deflated_zeros(3000, b"["),
    "Parquet of equal rows": _constant_parquet,
    "manifest of 6,000 runs": _long_manifest,
}
"""Makes files that are too large to keep, by name."""
