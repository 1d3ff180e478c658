"""Predictions larger than memory, from a memory-mapped file: peak memory, and time against size.

`DUBIO_BENCH_ROWS=50000 python -m bench scoring_memory` is the full size: 50 × 50,000 × 1,000 float32, 10 GB on disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SAMPLES, CLASSES = 50, 1000
ROWS = int(os.environ.get("DUBIO_BENCH_ROWS", "5000"))

SCORING = """
import json, pathlib, resource, sys, time
started = time.process_time()
import dubio
from dubio.metrics.decomposition import decompose
loaded = time.process_time()
predictions = dubio.read_predictions(sys.argv[1])
read = time.process_time()
found = dubio.evaluate(predictions, metrics=("nll", "brier", "ece", "aurc"), replicates=0)
scored = time.process_time()
information = decompose(predictions).mutual_information.mean()
done = time.process_time()
status = pathlib.Path("/proc/self/status")
if status.exists():  # getrusage would count what the parent held when it started this process
    peak = 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"check": read - loaded, "scores": scored - read, "decomposition": done - scored,
                  "all": done - loaded, "peak": peak, "nll": found["nll"], "mi": float(information)}))
"""


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.safetensors"
        found = {}
        for samples, rows in ((SAMPLES, ROWS // 2), (SAMPLES // 2, ROWS), (SAMPLES, ROWS)):
            _write(path, samples, rows)
            found[samples, rows] = _scored(path)
            path.unlink()
    whole = found[SAMPLES, ROWS]
    parts = ", ".join(f"{part} {whole[part]:.1f} s" for part in ("check", "scores", "decomposition"))
    conditions = f"{SAMPLES} × {ROWS:,} × {CLASSES:,} float32, {SAMPLES * ROWS * CLASSES * 4 / 1e9:.1f} GB mapped"
    yield f"Peak memory of scoring a mapped file: {whole['peak'] / 1e9:.2f} GB (aim < 1.5 GB) [{conditions}; {parts}]"
    by_rows = whole["all"] / found[SAMPLES, ROWS // 2]["all"]
    by_samples = whole["all"] / found[SAMPLES // 2, ROWS]["all"]
    times = f"{by_rows:.2f} ×, for twice the samples: {by_samples:.2f} ×"
    yield f"Time for twice the rows: {times} (aim 2 ×: linear) [CPU time, {conditions}]"


def _scored(path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", SCORING, str(path)], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def _write(path: Path, samples: int, rows: int) -> None:
    """A prediction file in dubio's own layout, written a sample at a time."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, CLASSES, rows)
    ends = np.cumsum([samples * 8, rows * 8, samples * rows * CLASSES * 4, rows]).tolist()
    shapes = {"member": ("I64", [samples]), "labels": ("I64", [rows]),
              "logits": ("F32", [samples, rows, CLASSES]), "ood": ("BOOL", [rows])}  # fmt: skip
    header: dict[str, object] = {
        "__metadata__": {"dubio": "predictions", "schema": "1", "target": "multiclass", "temperature": "1.0"}
    }
    for (name, (dtype, shape)), start, end in zip(shapes.items(), [0, *ends], ends, strict=False):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    shared = generator.standard_normal((rows, CLASSES), dtype=np.float32)
    shared[np.arange(rows), labels] += 4.0
    with path.open("wb") as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        handle.write(np.arange(samples, dtype="<i8").data)
        handle.write(labels.astype("<i8").data)
        for _ in range(samples):
            handle.write((shared + generator.standard_normal((rows, CLASSES), dtype=np.float32)).data)
        handle.write(np.zeros(rows, dtype=bool).data)
