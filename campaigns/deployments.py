"""What the campaigns disturb of a method in use: exported models, prediction jobs, sheets, grids, the log of a server.

They need a trained run. As a program (``python -m campaigns.deployments FOLDER``) this makes one, once for all of them:
a table of texts, the store of a run, and a model exported from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from campaigns.exports import anew, command, observe_files, run_quietly, with_older, without_rendering
from campaigns.operations import Folder, Operation, State, digest
from campaigns.shim import mark
from dubio.core.registry import METHODS, NETWORKS, TASKS
from dubio.serving.register import Register

WORDS = (("good", "fine", "fast"), ("bad", "poor", "slow"))
RUN, MODEL, ROWS = "texts", "model", "rows.csv"
EXPORT = ("export", RUN, "--method", "linear", "-o", "{}/out/model", "--store", "{}/store", "--calibrate",
          "temperature", "--capacity", "0.3")  # fmt: skip
OUTPUTS = ("predictions.safetensors", "predictions.csv", "predictions.parquet")
CHUNK = 8
"""Rows of a chunk, so that thirty rows are several."""


# --- a trained run --------------------------------------------------------------------------------------------------


def table_of_texts(rows: int, seed: int) -> str:
    """Return a CSV file of texts with two classes."""
    generator = np.random.default_rng(seed)
    lines = ["number,review,stars"]
    for number in range(rows):
        label = int(generator.integers(0, 2))
        words = [*generator.choice(WORDS[label], 2), *generator.choice(sum(WORDS, ()), 3)]
        lines.append(f"{number},{' '.join(words)},{'good' if label == 0 else 'bad'}")
    return "\n".join(lines) + "\n"


def train(folder: Path) -> None:
    """Make the run and the model."""
    import dubio

    (folder / "texts.csv").write_text(table_of_texts(400, 0))
    (folder / ROWS).write_text(table_of_texts(30, 1))
    options = {"text": "review", "label": "stars", "id": "number"}
    dubio.run(data=folder / "texts.csv", data_options=options, methods=["linear"], seeds=1, store=folder / "store",
              jobs=1, baselines=False, progress=False)  # fmt: skip
    run_quietly(command(*(word.replace("out/", "") for word in EXPORT)), folder)


def train_aside(folder: Path) -> None:
    """Make the run and the model in a new process, so that this one stays small."""
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "DUBIO_FAKE_LOG")}
    subprocess.run([sys.executable, "-m", "campaigns.deployments", str(folder)], env=environment, check=True)


def with_copies(source: Path, *names: str, older: Mapping[str, bytes] | None = None) -> Folder:
    """Return a preparation that copies from the trained run; dubio's own methods take the place of the fake ones."""

    def prepare(folder: Path) -> None:
        for registry in (METHODS, NETWORKS, TASKS):
            registry._entries, registry._filled = {}, False
        for name in names:
            (shutil.copytree if (source / name).is_dir() else shutil.copy)(source / name, folder / name)
        (folder / "out").mkdir()
        for name, content in (older or {}).items():
            (folder / "out" / name).write_bytes(content)

    return prepare


# --- operations -----------------------------------------------------------------------------------------------------


def predict_as(name: str) -> Folder:
    """Return an act that predicts rows in several chunks, and decides about them."""
    words = ("predict", "{}/model", f"{{}}/{ROWS}", "-o", f"{{}}/out/{name}", "--decisions", "{}/out/decisions.csv")

    def act(folder: Path) -> None:
        from dubio.deployment import row_files

        row_files.CHUNK = CHUNK
        command(*words)(folder)

    return act


def interrupted(prepare: Folder, name: str) -> Folder:
    """Return a preparation in which a prediction job was interrupted after its first two chunks."""

    def prepare_half(folder: Path) -> None:
        from dubio.deployment.prediction_job import PredictionJob

        prepare(folder)
        finish = PredictionJob.finish
        setattr(PredictionJob, "finish", lambda job: None)  # noqa: B010
        try:
            run_quietly(predict_as(name), folder)
        finally:
            setattr(PredictionJob, "finish", finish)  # noqa: B010
        for path in sorted((folder / "out" / f"{name}.parts").glob("*.safetensors"))[2:]:
            path.unlink()
        for path in (folder / "out").glob("*.*"):
            if path.is_file():
                path.unlink()

    return prepare_half


def log_decisions(folder: Path) -> None:
    """Decide about rows as a server does: an id that was decided is not decided again."""
    register = Register(folder / "out" / "log")
    try:
        for number in range(4):
            name = f"row {number}"
            if register.decision(name) is None:
                decision = {"decision": ("refer", "retain")[number % 2], "uncertainty": number / 8}
                entry = {"entry": "decision", "id": name, "content": "0", "at": "now", "decision": decision}
                rows = [{"id": name, "row": {"review": "good"}}]
                register.apply_rows(rows, register.write_rows(rows))
                register.apply([entry], register.write([entry]))
                mark(f"decisions.log/{name}")
                mark(f"rows.log/{name}")
    finally:
        register.close()


def observe_log(folder: Path) -> State:
    """Return the entries of the logs up to the first frame that is not whole, read by other code than the server's."""
    state = {}
    for path in sorted((folder / "out" / "log").glob("*.log")):
        before = "0" * 32
        for line in path.read_bytes().splitlines():
            digits, payload = line[:32].decode("latin-1"), line[33:]
            if hashlib.sha256(before.encode() + payload).hexdigest()[:32] != digits:
                break
            before = digits
            for entry in json.loads(payload):
                if "id" in entry:
                    state[f"{path.name}/{entry['id']}"] = digest(json.dumps(entry, sort_keys=True).encode())
    return state


def begun_log(folder: Path) -> None:
    """Prepare the log of a server that has decided about one row, and half of its next frame."""
    log_decisions(folder)
    for path in (folder / "out" / "log").glob("*.log"):
        frames = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(frames[:2]) + frames[2][:20])


def file_operations() -> dict[str, tuple[Folder, Folder]]:
    """Return name → preparation and act of what is made from prediction files."""
    policy = ("refer", "fit", "{}/mine.npz", "--max-risk", "0.2", "-o", "{}/out/policy.json")
    grid = ("refer", "fit", "{}/mine.npz", "--targets", "0.2,0.3", "-o", "{}/out/grid")
    gates = ("--require", "accuracy>=0.1", "--junit", "{}/out/junit.xml", "--report", "{}/out/page.html")
    return {
        "refer fit with a sheet": (
            with_older("policy.json", "sheet.html"),
            without_rendering(command(*policy, "--report", "{}/out/sheet.html")),
        ),
        "refer fit of a grid": (with_older(), anew("grid", command(*grid))),
        "evaluate with outcomes and a report": (
            with_older("junit.xml", "page.html"),
            without_rendering(command("evaluate", "{}/mine.npz", "--replicates", "20", *gates)),
        ),
        "report of predictions": (
            with_older("report.html", "results.csv"),
            without_rendering(command("report", "{}/mine.npz", "--out", "{}/out")),
        ),
    }  # fmt: skip


def model_operations(trained: Path) -> dict[str, tuple[Folder, Folder]]:
    """Return name → preparation and act of what is made with a trained run or its model."""
    older = dict.fromkeys((*OUTPUTS, "decisions.csv"), b"what was there before")
    predicted = with_copies(trained, MODEL, ROWS, older=older)
    return {
        "export a model": (with_copies(trained, "store", "texts.csv"), anew("model", command(*EXPORT))),
        **{f"predict to {Path(name).suffix}": (predicted, predict_as(name)) for name in OUTPUTS},
        "continue a prediction job": (
            interrupted(with_copies(trained, MODEL, ROWS), OUTPUTS[0]), predict_as(OUTPUTS[0]),
        ),
    }  # fmt: skip


def deployment_operations(folder: Path) -> list[Operation]:
    """Return every kind of file that a method in use writes; the trained run is in the folder."""
    return [
        *(Operation(name, *both, observe_files) for name, both in file_operations().items()),
        Operation("append to the log of a server", empty_out, log_decisions, observe_log),
        Operation("open the torn log of a server", begun_log, log_decisions, observe_log),
        *(Operation(name, *both, observe_files, of_trained=True) for name, both in model_operations(folder).items()),
    ]


def empty_out(folder: Path) -> None:
    """Prepare a folder for outputs."""
    (folder / "out").mkdir()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
