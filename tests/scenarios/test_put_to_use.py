"""From a user's data to a served model in at most eight commands, in a fresh environment, as a run itself names them.

The first two make the environment and install dubio. The decisions of ``predict``, of the loaded model and of the
server must be the same, unless a score lies within 1e-5 of the threshold.
"""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pytest

import dubio
from dubio.deployment.model import NEAR

INSTALLING = 2
MOST_COMMANDS = 8
LAST = ("predict new rows", "export a model", "serve it")

pytestmark = pytest.mark.slow


def write_table(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def texts(folder: Path) -> list[str]:
    from tests.deployment.helpers import text_task

    task = text_task(900, seed=3)
    rows = [[text, task.classes[label]] for split in task.splits
            for text, label in zip(split.data.inputs, split.data.labels.tolist(), strict=True)]  # fmt: skip
    write_table(folder / "mine.csv", ["review", "stars"], rows[60:])
    write_table(folder / "new.csv", ["review", "stars"], rows[:60])
    return ["--data", "mine.csv", "--text", "review", "--label", "stars", "--method", "mc-dropout"]


def table(folder: Path) -> list[str]:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.target))
    rows = [[*data.data[row].tolist(), data.target_names[data.target[row]]] for row in order]
    write_table(folder / "mine.csv", [*data.feature_names, "diagnosis"], rows[60:])
    write_table(folder / "new.csv", [*data.feature_names, "diagnosis"], rows[:60])
    return ["--data", "mine.csv", "--features", "*", "--label", "diagnosis", "--method", "mc-dropout"]


def images(folder: Path) -> list[str]:
    from PIL import Image
    from sklearn.datasets import load_digits

    data = load_digits(n_class=3)
    for row, (pixels, label) in enumerate(zip(data.images, data.target, strict=True)):
        path = folder / ("images" if row % 9 == 0 else "mine") / f"digit {label}" / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((15 * pixels).astype(np.uint8)).save(path)
    return ["--data", "mine", "--method", "mc-dropout"]


def content(row: dict[str, str], folder: Path, columns: tuple[str, ...]) -> dict[str, object]:
    """Return a row as a client sends it."""
    import base64

    if columns == ("image",):
        return {"image": base64.b64encode((folder / "images" / row["id"]).read_bytes()).decode()}
    return {name: row[name] for name in columns}


@pytest.mark.parametrize("data", [texts, table, images])
def test_from_data_to_a_served_model_in_eight_commands(data, clean):
    folder = clean.writable(data.__name__)
    options = data(folder)
    commands: list[list[str]] = []

    def command(words: list[str]) -> str:
        commands.append(words)
        process = clean.start(words, folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=900)
        assert process.returncode == 0, output
        return output

    output = command(["dubio", "run", *options, "--seeds", "1", "--jobs", "1", "--set", "epochs=8"])
    named = dict(line.split(": ", 1) for line in output.splitlines() if line.startswith(LAST))
    assert tuple(named) == LAST
    predict, export, serve = (shlex.split(named[name]) for name in LAST)
    report = (folder / "dubio-report" / "report.html").read_text("utf-8")
    assert all(line in report for line in named.values())
    command(export)
    command(predict)
    command(["dubio", "predict", "model", predict[-3], "-o", "again.csv", "--decisions", "decisions.csv"])

    decided = list(csv.DictReader((folder / "decisions.csv").open(newline="")))
    model = dubio.load(folder / "model")
    source = [{"id": row["id"]} for row in decided]
    if model.inputs != "image":
        source = list(csv.DictReader((folder / "new.csv").open(newline="")))
    rows = [content(row, folder, model.columns) for row in source]
    commands.append([*serve, "--port", "0"])
    process = clean.start(commands[-1], folder, stderr=subprocess.PIPE)
    try:
        address = next(m[1] for line in process.stderr if (m := re.match(r"dubio serve: (\S+)/$", line.strip())))
        answers = [httpx.post(f"{address}/decide", json={"rows": [{"row": row}]}, timeout=60).json() for row in rows]
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    pictures = [{"image": folder / "images" / row["id"]} for row in decided] if model.inputs == "image" else rows
    loaded = model.decide(pictures)
    agreeing = 0
    for row, own, answer in zip(decided, loaded.rows(), answers, strict=True):
        (served,) = answer["decisions"]
        if not served["reason"].endswith(NEAR):
            assert (row["decision"], row["predicted"]) == (own["decision"], own["predicted"])
            assert (row["decision"], row["predicted"]) == (served["decision"], served["answer"])
            agreeing += 1
    assert agreeing >= len(decided) - 2
    assert INSTALLING + len(commands) <= MOST_COMMANDS
