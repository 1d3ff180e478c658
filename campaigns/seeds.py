"""Small valid files of every format that dubio reads, written by dubio where it writes the format."""

from __future__ import annotations

import functools
import gzip
import io
import json
import pickle
import struct
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.mutators.arrays import npy_bytes, zip_bytes

Tree = dict[str, bytes]
"""Files by their path below the folder of a case."""

ROWS = 80
CLASSES = 3


def probabilities(classes: int = CLASSES, samples: int = 0, seed: int = 0) -> Any:
    """Return probabilities of a system that is right more often than not."""
    generator = np.random.default_rng(seed)
    shape = (samples, ROWS, classes) if samples else (ROWS, classes)
    logits = 2 * np.eye(classes)[class_labels(classes)] + generator.normal(0, 1, shape)
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def class_labels(classes: int = CLASSES) -> Any:
    """Return the label of each row."""
    return np.arange(ROWS) * 7 % classes


def npz(**arrays: Any) -> bytes:
    """Return arrays as an npz file."""
    return zip_bytes([(f"{name}.npy", npy_bytes(array)) for name, array in arrays.items()])


GROUP = [f"p{k // 2}" for k in range(ROWS)]
SITE = ["north" if k % 4 else "south" for k in range(ROWS)]
IDS = [f"row-{k}" for k in range(ROWS)]


def predictions_npz() -> list[bytes]:
    """Files of predictions: plain ones, and with ids, groups and sites."""
    texts = {"ids": np.array(IDS), "group": np.array(GROUP), "site": np.array(SITE)}
    return [
        npz(probs=probabilities(), labels=class_labels(), **texts),
        npz(logits=np.log(probabilities()).astype("f4"), labels=class_labels().astype("i4"), **texts),
    ]


def sampled_npz() -> list[bytes]:
    """Files of sampled predictions, with names of classes."""
    names = np.array(["a", "b", "c"])
    return [
        npz(logits=np.log(probabilities(samples=3)).astype("f4"), labels=class_labels(), classes=names),
        npz(probs=probabilities(samples=4), labels=class_labels(), member=np.arange(4) // 2, classes=names),
    ]


def multilabel_npz() -> list[bytes]:
    """A file of predictions of several labels per row."""
    generator = np.random.default_rng(3)
    labels = generator.random((ROWS, 4)) < 0.4
    return [npz(probs=np.clip(0.6 * labels + 0.3 * generator.random((ROWS, 4)), 0, 1), labels=labels.astype(np.int64))]


def table_text(separator: str = ",") -> str:
    """Return predictions as delimited text."""
    head = ["id", "label", *(f"p{k}" for k in range(CLASSES)), "group", "site"]
    rows = [
        [IDS[k], str(label), *(f"{value:.9f}" for value in row), GROUP[k], SITE[k]]
        for k, (label, row) in enumerate(zip(class_labels(), probabilities(), strict=True))
    ]
    return "".join(separator.join(row) + "\n" for row in [head, *rows])


def long_table() -> str:
    """Return sampled predictions as a table with one row per example and sample."""
    rows = [
        f"{k},{sample},{label},{p:.6f},{1 - p:.6f}"
        for sample, probs in enumerate(probabilities(2, samples=2))
        for k, (label, p) in enumerate(zip(class_labels(2), probs[:, 0], strict=True))
    ]
    return "\n".join(["id,sample,label,p0,p1", *rows]) + "\n"


def records() -> list[dict[str, Any]]:
    """Return predictions as one object per row."""
    return [
        {
            "id": IDS[k],
            "label": int(label),
            **{f"p{c}": round(float(p), 9) for c, p in enumerate(row)},
            "group": GROUP[k],
            "site": SITE[k],
        }
        for k, (label, row) in enumerate(zip(class_labels(), probabilities(), strict=True))
    ]


def json_lines(items: list[dict[str, Any]]) -> bytes:
    """Return JSON Lines."""
    return "".join(json.dumps(item) + "\n" for item in items).encode()


def parquet(columns: dict[str, Any]) -> bytes:
    """Return columns as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


def parquet_predictions() -> bytes:
    """Return predictions as Parquet."""
    columns: dict[str, Any] = {f"p{k}": probabilities()[:, k] for k in range(CLASSES)}
    return parquet({"id": IDS, "label": class_labels(), **columns, "group": GROUP, "site": SITE})


def own_rows() -> list[dict[str, Any]]:
    """Return a user's own rows: texts, numbers, classes, groups, times, parts."""
    words = ("good", "bad", "fine", "poor", "film", "plot", "actor", "dull")
    generator = np.random.default_rng(5)
    return [
        {
            "id": f"r{k}",
            "text": " ".join(words[(k * j + j) % 8] for j in range(1, 7)) + f" {k}",
            "label": "yes" if k % 2 else "no",
            "age": round(float(generator.normal(50, 10)), 2),
            "dose": round(float(generator.random()), 3),
            "patient": f"p{k // 2}",
            "date": f"2024-{k % 12 + 1:02d}-{k % 28 + 1:02d}",
            "site": ("north", "south", "east")[k % 3],
        }
        for k in range(60)
    ]


def delimited(rows: list[dict[str, Any]], separator: str = ",") -> bytes:
    """Return rows as delimited text."""
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    return "".join(separator.join(line) + "\n" for line in lines).encode()


def _written(write: Callable[[Path], object]) -> Tree:
    """Return what a function writes into an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@functools.cache
def referral_files() -> Tree:
    """Policies of every kind, recalibrations of every kind and predictions in dubio's own format, made by dubio."""
    from typer.testing import CliRunner

    from dubio.cli.app import app

    def write(folder: Path) -> None:
        group = np.array(GROUP)
        for name, classes in (("cal.npz", CLASSES), ("two.npz", 2), ("new.npz", CLASSES)):
            probs = probabilities(classes, seed=len(name) + classes)
            (folder / name).write_bytes(npz(probs=probs, labels=class_labels(classes), ids=np.array(IDS), group=group))
        commands = (
            "refer fit cal.npz --max-risk 0.3 -o risk.json",
            "refer fit cal.npz --capacity 0.2 -o capacity.json",
            "refer fit cal.npz --max-risk 0.4 --group group -o group.json",
            "refer fit two.npz --sensitivity 0.6 -o screening.json",
            "refer fit cal.npz --targets 0.4,0.5 -o grid.folder",
            "calibrate fit cal.npz -o temperature.json",
            "calibrate fit cal.npz --method vector -o vector.json",
            "calibrate fit cal.npz --method isotonic -o isotonic.json",
        )
        for command in commands:
            words = [str(folder / word) if "." in word and not word[0].isdigit() else word for word in command.split()]
            outcome = CliRunner().invoke(app, words)
            if outcome.exit_code:
                raise RuntimeError(f"dubio {command}: {outcome.output} {outcome.exception!r}")

        _write_own_format(folder / "own.safetensors")

    return _written(write)


GRID = ("grid.folder/risk-0.4-cal.json", "grid.folder/risk-0.5-cal.json")
"""Policies of one family."""


def decision_log() -> Tree:
    """Return the folder of a server that has decided about three rows, one of them labelled."""
    from dubio.serving.register import Register

    def write(path: Path) -> None:
        register = Register(path)
        for name, uncertainty, decision in (("a", 0.4, "refer"), ("b", 0.01, "retain"), ("c", 0.3, "refer")):
            answer: dict[str, Any] = {"id": name, "answer": "x", "reason": "r"}
            answer |= {"probabilities": {"x": 1 - uncertainty, "y": uncertainty}}
            answer |= {"uncertainty": uncertainty, "decision": decision}
            register.write([{"entry": "decision", "id": name, "content": "0", "at": "2026-01-01", "decision": answer}])
            register.write_rows([{"id": name, "row": {"text": name}}])
        register.write([{"entry": "label", "id": "a", "at": "2026-01-01", "label": "y"}])
        register.close()

    return {f"log/{name}": content for name, content in _written(write).items()}


def _write_own_format(path: Path) -> None:
    from dubio.core.predictions import Predictions
    from dubio.formats import write_predictions

    logits = np.log(probabilities()).astype(np.float32)[None]
    texts: dict[str, Any] = {"group": np.array(GROUP), "ids": np.array(IDS)}
    write_predictions(
        path, Predictions(logits=logits, labels=class_labels(), columns={"site": np.array(SITE)}, **texts)
    )


RESULTS = {
    "long.csv": "dataset,method,metric,value,seed\n"
    + "".join(
        f"{d},{m},nll,{0.3 + 0.1 * i + 0.05 * j + 0.01 * s:.2f},{s}\n"
        for i, d in enumerate("abcde")
        for j, m in enumerate(("forest", "network", "linear"))
        for s in (0, 1)
    ),
    "wide.csv": "method,a,b,c\nforest,0.81,0.7,0.6\nnetwork,0.93,0.88,0.9\nlinear,0.5,0.6,0.7\n",
    "paper.md": "| Method | cifar | svhn |\n|:--|--:|--:|\n| forest | 0.81 | 0.70 |\n"
    "| network | **0.93** | 0.88 (0.02) |\n",
    "paper.tex": "\\begin{tabular}{l|cc}\nMethod & cifar & svhn \\\\ \\midrule\nforest & 0.81 & 0.70 \\\\\n"
    "\\textbf{network} & $\\mathbf{0.93} \\pm 0.01$ & 0.88 \\\\\n\\end{tabular}\n",
}

BENCHMARK = b"""name = "tiny"
description = "Two methods on a small table."
seeds = [0, 1]
methods = ["deterministic", "mc-dropout", "mine"]
default_preset = "small"

[preset.small]
description = "One seed."
seeds = [0]
methods = ["deterministic", "mine"]
training = { epochs = 2 }

[variant.mine]
method = "mc-dropout"
samples = 3
p = 0.2

[method.mc-dropout]
samples = 2

[tune.mc-dropout]
p = [0.1, 0.3]

[[task]]
name = "own"
network = "mlp"
arguments = { data = "own.csv", label = "label", features = ["age", "dose"] }
network_arguments = { hidden = [8] }
training = { epochs = 3, patience = 1 }
"""


def png(side: int = 12, shade: int = 0, mode: str = "RGB") -> bytes:
    """Return a small picture."""
    from PIL import Image

    generator = np.random.default_rng(shade)
    pixels = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
    target = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(target, "PNG")
    return target.getvalue()


def jpeg(side: int = 24, shade: int = 0) -> bytes:
    """Return a small photograph with a disc on black, as fundus cameras make them."""
    from PIL import Image

    y, x = np.mgrid[:side, :side] - side / 2
    disc = (x**2 + y**2 < (0.45 * side) ** 2)[..., None]
    pixels = (disc * np.array([180, 90 + shade % 60, 40]) + shade % 7).astype(np.uint8)
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "JPEG")
    return target.getvalue()


@functools.cache
def image_folder() -> Tree:
    """Class folders of pictures."""
    kinds = ("RGB", "L", "P", "RGBA", "LA", "1")
    return {
        f"pictures/{name}/{k}.{'jpg' if k == 4 else 'png'}": jpeg(shade=k + 9)
        if k == 4
        else png(12 + k, k + 20 * place, kinds[k % 6])
        for place, name in enumerate(("cat", "dog"))
        for k in range(10)
    }


@functools.cache
def fundus_folder() -> Tree:
    """Photographs with a table of grades, as APTOS comes."""
    rows = [f"eye{k},{k % 5}" for k in range(10)]
    images = {f"aptos/train_images/eye{k}.jpg": jpeg(40, k) for k in range(10)}
    return {"aptos/train.csv": ("id_code,diagnosis\n" + "\n".join(rows) + "\n").encode(), **images}


def sheet() -> bytes:
    """Return a plain Excel sheet of labels."""
    shared = "".join(f"<si><t>{text}</t></si>" for text in ("image", "level", "eye1", "eye2"))
    rows = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>' + "".join(
        f'<row r="{k}"><c r="A{k}" t="s"><v>{k}</v></c><c r="B{k}"><v>{k}</v></c></row>' for k in (2, 3)
    )
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return zip_bytes(
        [
            ("xl/sharedStrings.xml", f"{head}<sst {space}>{shared}</sst>".encode()),
            (
                "xl/worksheets/sheet1.xml",
                f"{head}<worksheet {space}><sheetData>{rows}</sheetData></worksheet>".encode(),
            ),
        ]
    )


def pixels(count: int, seed: int) -> Any:
    """Return rows of small images."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


@functools.cache
def cifar_files() -> dict[str, Tree]:
    """CIFAR-10 in its authors' python and binary files and as arrays, and idx files, each as a tree."""
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    labels = [k % 10 for k in range(10)]
    python, binary = {}, {}
    for k, name in enumerate(names):
        python[f"cifar/cifar-10-batches-py/{name}"] = pickle.dumps({"data": pixels(10, k), "labels": labels}, 2)
        rows = np.hstack([np.array(labels, np.uint8)[:, None], pixels(10, k)])
        binary[f"cifar/cifar-10-batches-bin/{name}.bin"] = rows.tobytes()
    images = pixels(40, 9).reshape(-1, 32, 32, 3)
    arrays = npz(x_train=images, y_train=np.arange(40) % 10, x_test=images[:10], y_test=np.arange(10))
    idx = gzip.compress(struct.pack(">IIII", 0x803, 5, 28, 28) + bytes(5 * 784), mtime=0)
    return {"python": python, "binary": binary, "arrays": {"cifar10.npz": arrays}, "idx": {"images.gz": idx}}


def tar_gz() -> bytes:
    """Return a gzipped tar archive of a folder and two files."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        folder = tarfile.TarInfo("data")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name in ("data/a.txt", "data/b.txt"):
            member = tarfile.TarInfo(name)
            member.size = 700
            tar.addfile(member, io.BytesIO(name.encode() * 70))
    return gzip.compress(target.getvalue(), mtime=0)


def archive_zip() -> bytes:
    """Return a zip archive of two files."""
    return zip_bytes([("data/a.txt", b"a" * 700), ("data/b.txt", b"b" * 700)])
