"""Tables of 50,000 × 100 numbers from CSV and Parquet: time against pyarrow's own read, and peak memory.

CPU time, in turns, the least of several rounds: pyarrow divides its work over all cores, which others may use. Memory
is that of a process above what it has after it read a table of ten rows: a library's pages come in with its first use.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROWS, COLUMNS, ROUNDS = 50_000, 100, 5

MEASURING = """
import json, pathlib, sys, time
import pyarrow.csv, pyarrow.parquet
from dubio.formats import read_predictions
from dubio.tables import read_table
folder, ending, rounds = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
names = [f"p{index}" for index in range(int(sys.argv[4]))]
ways = {
    "pyarrow": pyarrow.csv.read_csv if ending == "csv" else pyarrow.parquet.read_table,
    "table": lambda path: read_table(path, lambda head: names),
    "features": lambda path: read_table(path, lambda head: names).features(names),
    "predictions": read_predictions,
}
peak = lambda: int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
way = ways[sys.argv[5]]
way(folder / f"small.{ending}")
before = peak()
way(folder / f"large.{ending}")
memory = peak() - before
least = {sys.argv[5]: float("inf"), "pyarrow": float("inf")}
for _ in range(rounds):
    for name in least:
        began = time.process_time()
        ways[name](folder / f"large.{ending}")
        least[name] = min(least[name], time.process_time() - began)
print(json.dumps({"seconds": least[sys.argv[5]], "pyarrow": least["pyarrow"], "memory": memory}))
"""


def write_tables(folder: Path) -> None:
    """Write probabilities with ids and labels, many rows and ten, as CSV and as Parquet."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.full(COLUMNS, 0.3), ROWS)
    columns = {f"p{index}": probs[:, index] for index in range(COLUMNS)}
    ids, labels = [f"r{row}" for row in range(ROWS)], generator.integers(0, COLUMNS, ROWS)
    large = pa.table({"id": ids, "label": labels, **columns})
    for name, table in (("large", large), ("small", large.slice(0, 10))):
        csv.write_csv(table, folder / f"{name}.csv", csv.WriteOptions(quoting_style="needed"))
        parquet.write_table(table, folder / f"{name}.parquet")


def measured(folder: Path, ending: str, way: str, rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of CPU of a way to read and of pyarrow's own, and bytes at the peak, in a process of their own."""
    arguments = [str(folder), ending, str(rounds), str(COLUMNS), way]
    done = subprocess.run([sys.executable, "-c", MEASURING, *arguments], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def run() -> Iterator[str]:
    """Measure both formats, as a table, as features of a task and as predictions."""
    array = 8 * ROWS * COLUMNS
    with tempfile.TemporaryDirectory() as name:
        write_tables(Path(name))
        for ending, aim in (("csv", 1.5), ("parquet", 1.2)):
            for way in ("table", "features", "predictions"):
                facts = measured(Path(name), ending, way)
                times = f"{facts['seconds'] / facts['pyarrow']:.2f} × pyarrow's read"
                seconds = f"{facts['pyarrow']:.3f} s → {facts['seconds']:.3f} s of CPU; aim {aim} ×"
                memory = f"peak {facts['memory'] / array:.1f} × the array of {array / 1e6:.0f} MB; aim 5 ×"
                yield f"{ending} as {way}: {times} ({seconds}), {memory} [{ROWS:,} × {COLUMNS}]"
