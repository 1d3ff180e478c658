"""Files and names that somebody may give to do harm, or by mistake: each is refused in one line, with exit code 2."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio import __main__ as main_module
from dubio.calibration.recalibration import fit_recalibration, recalibration_to_json
from dubio.core.predictions import Predictions
from dubio.referral import fit_capacity_policy

DIGITS = "9" * 400
DEEP = {depth: "[" * depth + "]" * depth for depth in (5_000, 100_000)}

PROBABILITIES = np.random.default_rng(0).dirichlet(np.ones(3), 40)
LABELS = PROBABILITIES.argmax(axis=1)
LABELS[:10] = 0
PREDICTIONS = Predictions(np.log(PROBABILITIES)[None].astype(np.float32), LABELS)

Run = Callable[..., tuple[object, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command as the shell would; return its exit code and what it says on standard error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def command(*arguments: object) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["dubio", *map(str, arguments)])
        code: object = 0
        try:
            main_module.main()
        except SystemExit as stop:
            code = stop.code
        return code, capsys.readouterr().err

    return command


def refused(outcome: tuple[object, str], *words: str) -> None:
    code, message = outcome
    assert code == 2, message
    assert message.count("\n") == 1, message
    for word in words:
        assert word in message


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.npz"
    np.savez(path, probs=PROBABILITIES, labels=LABELS)
    return path


# --- prediction files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classes", "ids", "group", "labels", "column.site", "patient", "empty_decision"])
@pytest.mark.parametrize("code", [0x110000, 0xD800])
def test_texts_that_are_not_unicode(name: str, code: int, tmp_path: Path, run: Run) -> None:
    texts = np.array([f"{row:03}" for row in range(3 if name == "classes" else 40)])
    texts.view(np.uint32)[3] = code  # the second row
    path = tmp_path / "mine.npz"
    np.savez(path, **{"probs": PROBABILITIES, "labels": LABELS, name: texts})
    refused(run("evaluate", path), f"mine.npz': array '{name}': row 1 is not Unicode text")


def test_a_name_of_an_array_that_is_not_utf8(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "mine.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("é.npy", b"")
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff"))
    refused(run("evaluate", path), "mine.npz' is not an npz file, or is damaged")


@pytest.mark.parametrize("name", ["probs", "log_probs", "logits"])
def test_an_empty_array(name: str, tmp_path: Path, run: Run) -> None:
    np.savez(tmp_path / "mine.npz", **{name: np.zeros(0), "labels": LABELS})
    refused(run("evaluate", tmp_path / "mine.npz"), "mine.npz")


def own_file(path: Path, header: str | bytes) -> Path:
    text = header.encode() if isinstance(header, str) else header
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return path


METADATA = {"dubio": "predictions", "schema": "1", "target": "multiclass", "temperature": "1.0"}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (DEEP[100_000], "nested deeper than 100 levels"),
        (f'{{"a": {DIGITS}}}', "needs more than 64 bits"),
        ('{"a": 1e999}', "1e999 is not finite"),
        (json.dumps({"__metadata__": METADATA | {"classes": DEEP[5_000]}}), "nested deeper than 100 levels"),
        (json.dumps({"__metadata__": METADATA | {"classes": '["\\ud800"]'}}), "half of a surrogate pair"),
        (json.dumps({"__metadata__": METADATA | {"schema": "1e999"}}), "not those of predictions"),
        (json.dumps({"__metadata__": METADATA | {"schema": "9" * 5_000}}), "not those of predictions"),
    ],
)
def test_headers_of_safetensors(header: str, words: str, tmp_path: Path, run: Run) -> None:
    entry = {"dtype": "F32", "shape": [1, 1, 2], "data_offsets": [0, 8]}
    labels = {"dtype": "I64", "shape": [1], "data_offsets": [8, 16]}
    if "__metadata__" in header:
        header = json.dumps({**json.loads(header), "logits": entry, "labels": labels})
    path = own_file(tmp_path / "mine.safetensors", header)
    with path.open("ab") as sink:
        sink.write(bytes(16))
    refused(run("evaluate", path), "mine.safetensors", words)


# --- documents --------------------------------------------------------------------------------------------------------


def policy() -> dict[str, Any]:
    return dict(json.loads(fit_capacity_policy(PREDICTIONS, capacity=0.3).to_json()))


def recalibration() -> dict[str, Any]:
    return dict(json.loads(json.dumps(recalibration_to_json(fit_recalibration(PREDICTIONS)))))


VALUES = {DIGITS: "64 bits", "Infinity": "Infinity", "NaN": "NaN", "1e999": "1e999", '"\\ud800"': "surrogate",
          DEEP[5_000]: "nested deeper", DEEP[100_000]: "nested deeper"}  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", ["schema", "classes", "threshold", "seen"])
def test_policies(value: str, place: str, tmp_path: Path, good: Path, run: Run) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy() | {place: "HERE"}).replace('"HERE"', value))
    refused(run("refer", "apply", path, good, "-o", tmp_path / "d.csv"), "policy.json", VALUES[value])
    assert not (tmp_path / "d.csv").exists()


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", ["schema", "names", "parameters"])
def test_recalibrations(value: str, place: str, tmp_path: Path, good: Path, run: Run) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(recalibration() | {place: "HERE"}).replace('"HERE"', value))
    refused(run("calibrate", "apply", path, good, "-o", tmp_path / "o.npz"), "r.json", VALUES[value])
    refused(run("evaluate", good, "--calibration", path), "r.json", VALUES[value])


@pytest.mark.parametrize("temperature", [1e-320, 5e-324, 1e-17])
def test_temperatures_that_rounding_would_decide(temperature: float, tmp_path: Path, good: Path, run: Run) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(recalibration() | {"parameters": {"temperature": temperature}}))
    refused(run("calibrate", "apply", path, good, "-o", tmp_path / "o.npz"), "temperature", "at least 2.22")
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy() | {"temperature": temperature}))
    refused(run("refer", "apply", path, good, "-o", tmp_path / "d.csv"), "temperature", "at least 2.22")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + DEEP[5_000], "nested deeper than 100 levels"),
        ("a = " + DEEP[100_000], "nested deeper than 100 levels"),
        ("a = " + "{b=" * 5_000, "nested deeper than 100 levels"),
        (f"seeds = [{DIGITS}]", "64 bits"),
        ("a = 1e999", "1e999 is not finite"),
        ("a = 2020-01-01", "date or time"),
        ("seeds = 3", "seeds"),
        ("task = 3", "task"),
        ("task = [3]", "task"),
        ("[[task]]\nname = [[]]", "name"),
        ("[preset]\nx = 3", "preset"),
        ("[method]\nx = 3", "method"),
    ],
)
def test_benchmarks(text: str, words: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\n{text}\n')
    refused(run("run", path, "--dry-run", "--store", tmp_path / "s"), "mine.toml", words)


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "epochs=-1"),
        ("--set", f"epochs={DIGITS}"),
        ("--set", "epochs=1e999"),
        ("--set", "epochs=" + DEEP[5_000]),
        ("--set", "lr=nan"),
        ("--set", "batch=0"),
        ("--seeds", "1" + "0" * 30),
        ("--seeds", "9" * 5_000),
        ("--seeds", f"{10**30}-{10**30}"),
        ("--seeds", "9" * 5_000 + "-1"),
    ],
)
def test_options_of_a_run(words: tuple[str, str], tmp_path: Path, run: Run) -> None:
    code, message = run("run", "quick", "--dry-run", "--store", tmp_path / "s", *words)
    assert code == 2, message
    assert message.splitlines()[-1].startswith("dubio: ")  # notes on tasks may stand before it


@pytest.mark.parametrize("value", ["1e400", "-1e400", "1e999999999999", DIGITS, "Infinity", "9" * 5_000])
def test_tables_of_results(value: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "results.csv"
    rows = [f"d{d},m{m},accuracy,{value if d == m == 1 else 0.5 + d * m / 100}" for d in range(4) for m in range(3)]
    path.write_text("\n".join(["dataset,method,metric,value", *rows]))
    refused(run("compare", path), "results.csv: row", "is not a finite number")


@pytest.mark.parametrize(
    "words",
    [("--seed", "-1"), ("--replicates", "1" + "0" * 30), ("--metric", "ece(bins=99999999999)"),
     ("--metric", f"ece(bins={DIGITS})"), ("--metric", "ece(bins=" + DEEP[5_000] + ")"), ("--metric", "ece(bins=NaN)")],
)  # fmt: skip
def test_options_of_an_evaluation(words: tuple[str, str], good: Path, run: Run) -> None:
    code, message = run("evaluate", good, *words)
    assert code == 2, message
    assert "Traceback" not in message


# --- any file argument ------------------------------------------------------------------------------------------------


@pytest.fixture
def odd_files(tmp_path: Path) -> dict[str, str]:
    """Things that are no files: kind → what its path ends with before the suffix."""
    folder = tmp_path / "odd"
    folder.mkdir()
    for suffix in (".npz", ".npy", ".safetensors", ".csv", ".tsv", ".parquet", ".json", ".toml", ".md", ".tex", ".py"):
        (folder / f"folder{suffix}").mkdir()
        os.mkfifo(folder / f"pipe{suffix}")
        (folder / f"loop{suffix}").symlink_to(f"loop{suffix}")
        (folder / f"device{suffix}").symlink_to("/dev/zero")
        (folder / f"empty{suffix}").touch()
        (folder / f"zeros{suffix}").write_bytes(bytes(1000))
        (folder / f"bytes{suffix}").write_bytes(bytes(range(256)) * 4)
    kinds = ("folder", "pipe", "loop", "device", "empty", "zeros", "bytes", "missing", "x" * 300, "none\udcff")
    return {kind: str(folder / kind) for kind in kinds}


COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "npz": (("evaluate", "F"), ("evaluate", "GOOD", "--ood", "F"), ("evaluate", "GOOD", "--labels", "F"),
            ("calibrate", "fit", "F", "-o", "OUT"), ("refer", "fit", "F", "-o", "OUT", "--capacity", "0.3"),
            ("dee", "F", "--ensemble", "GOOD")),
    "npy": (("evaluate", "F", "--values", "probs", "--labels", "F"),),
    "safetensors": (("evaluate", "F"),),
    "csv": (("evaluate", "F"), ("compare", "F")),
    "tsv": (("evaluate", "F"),),
    "parquet": (("evaluate", "F"),),
    "json": (("refer", "apply", "F", "GOOD", "-o", "OUT"), ("calibrate", "apply", "F", "GOOD", "-o", "OUT.npz"),
             ("evaluate", "GOOD", "--calibration", "F")),
    "toml": (("run", "F", "--dry-run"),),
    "md": (("compare", "F"),),
    "tex": (("compare", "F"),),
    "py": (("list", "metrics", "--plugin", "F"),),
}  # fmt: skip
HARMLESS = {("py", "empty")}


@pytest.mark.parametrize("suffix", COMMANDS)
def test_what_is_no_such_file_is_refused(
    suffix: str, odd_files: dict[str, str], tmp_path: Path, good: Path, run: Run
) -> None:
    for kind, stem in odd_files.items():
        if (suffix, kind) in HARMLESS:
            continue
        for command in COMMANDS[suffix]:
            names = {"F": f"{stem}.{suffix}", "GOOD": good, "OUT": tmp_path / "out.json", "OUT.npz": tmp_path / "o.npz"}
            refused(run(*(names.get(word, word) for word in command)))
            assert not (tmp_path / "out.json").exists()


# --- Parquet and JSON Lines, as predictions and as data ---------------------------------------------------------------


def bad_texts(arrow: Any, rows: int) -> Any:
    """Return a column of texts whose bytes are not UTF-8, which Arrow does not check."""
    ends = np.arange(0, 2 * rows + 1, 2, dtype=np.int32)
    buffers = [None, arrow.py_buffer(ends.tobytes()), arrow.py_buffer(b"\xff\xfe" * rows)]
    return arrow.Array.from_buffers(arrow.string(), rows, buffers)


@pytest.mark.parametrize("kind", ["texts", "dictionary", "duration", "timestamp", "column"])
def test_parquet_that_python_cannot_hold(kind: str, tmp_path: Path, run: Run) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"prob_{k}": arrow.array(PROBABILITIES[:, k]) for k in range(3)} | {"label": arrow.array(LABELS)}
    columns["colname"] = {
        "texts": lambda: bad_texts(arrow, 40),
        "dictionary": lambda: bad_texts(arrow, 40).dictionary_encode(),
        "duration": lambda: arrow.array([2**62] * 40, arrow.duration("s")),
        "timestamp": lambda: arrow.array([2**62] * 40, arrow.timestamp("ms")),
        "column": lambda: arrow.array(range(40)),
    }[kind]()
    path = tmp_path / "mine.parquet"
    parquet.write_table(arrow.table(columns), path, store_schema=kind != "column")
    if kind == "column":
        path.write_bytes(path.read_bytes().replace(b"colname", b"\xff\xfe" * 3 + b"\xff"))
    for command in (("evaluate", path, "--by", "colname"), ("evaluate", path), ("data", "check", path)):
        code, message = run(*command)
        assert code in (0, 2), message
        assert "Traceback" not in message


@pytest.mark.parametrize("value", VALUES)
def test_json_lines(value: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": ' + value + "}\n")
    refused(run("evaluate", path), "mine.jsonl", "line 2", VALUES[value])
    refused(run("data", "check", path), "mine.jsonl", "line 2", VALUES[value])
