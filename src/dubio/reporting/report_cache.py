"""Reuse the report of an unchanged run: nothing is scored, and nothing drawn, twice.

A report is determined by the manifest of its run, the stored files behind it, dubio's own code, the packages that
compute and draw, and its options. The hash of all of them names a file in the store's folder ``derived``, which holds
the texts of the report and what the terminal prints. Files count by size and time of change, code by its content. The
folder may be deleted at any time. A metric or section of a plugin may change without a trace: then nothing is reused.
"""

from __future__ import annotations

import json
import platform
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from dubio.core.documents import parse_json
from dubio.core.errors import DubioError
from dubio.core.files import write_file
from dubio.core.registry import METRICS
from dubio.core.specs import to_json
from dubio.core.validate import decode
from dubio.reporting.section import SECTIONS, Card, Text
from dubio.reporting.tables import Table
from dubio.reporting.terminal import TerminalBlock
from dubio.store import Store
from dubio.store.examples import example_files
from dubio.store.predictions import members_of

MOST = 8
"""Reports of a store that are kept for reuse; the oldest go first."""

LARGEST = 64 << 20
"""Bytes of a kept report; one that unpacks to more is damaged."""

PACKAGES = ("numpy", "scipy", "altair", "vl-convert-python", "jinja2")

BLOCKS: Mapping[str, type[TerminalBlock]] = {"table": Table, "card": Card, "text": Text}


@dataclass(frozen=True)
class ReportTexts:
    """A report without the run behind it: its files, and what a terminal prints."""

    files: Mapping[str, str]
    terminal: tuple[TerminalBlock, ...]


@dataclass(frozen=True, eq=False)
class ReportCache:
    """The reports of a run in its store."""

    store: Store
    manifest: Mapping[str, Any]

    def path(self, options: Mapping[str, Any]) -> Path | None:
        """Return where the report with these options stands, or would stand; None where nothing may be reused."""
        entries = (*METRICS.entries(), *SECTIONS.entries())
        if any(not entry.origin.startswith("dubio.") for entry in entries):
            return None
        determined = {
            "manifest": self.manifest, "files": list(self._files()), "code": code_digest(), "options": dict(options),
            "packages": [_version(name) for name in PACKAGES], "python": platform.python_version(),
        }  # fmt: skip
        digest = sha256(json.dumps(determined, sort_keys=True, default=str).encode()).hexdigest()
        return self.store.layout.derived / f"{digest}.report"

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, size and time of change of every stored file that the report is made from."""
        layout, runs = self.store.layout, self.manifest["runs"]
        predictions = {name for run in runs for name in (run["id"], *members_of(run.get("spec") or {}))}
        folders = [layout.directory("predictions", name) for name in sorted(predictions)]
        folders += [layout.directory("fits", name) for name in sorted({fit for run in runs for fit in run["fits"]})]
        splits = {split["fingerprint"] for task in self.manifest["tasks"] for split in task.get("splits", ())}
        paths = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
        for path in (*paths, *example_files(layout, splits)):
            facts = path.stat()
            yield path.relative_to(self.store.path).as_posix(), facts.st_size, facts.st_mtime_ns

    def read(self, path: Path) -> ReportTexts | None:
        """Return a report; None where there is none, or where its file is damaged."""
        with suppress(OSError, zlib.error, DubioError, KeyError, TypeError, ValueError):
            unpacking = zlib.decompressobj()
            content = unpacking.decompress(path.read_bytes(), LARGEST)
            if not unpacking.eof:
                raise ValueError("cut off, or larger than any report")
            document = parse_json(content, str(path))
            blocks = tuple(decode(BLOCKS[kind], block) for kind, block in document["terminal"])
            texts = decode(dict[str, str], document["files"])
            if any(name in ("", ".", "..") or Path(name).name != name for name in texts):
                raise ValueError("a name that leads out of the folder of the report")
            return ReportTexts(texts, blocks)
        return None

    def write(self, path: Path, texts: ReportTexts) -> None:
        """Keep a report for the next time, and remove the oldest; a store that cannot be written costs time alone."""
        names = {own: name for name, own in BLOCKS.items()}
        terminal = [(names[type(block)], asdict(block)) for block in texts.terminal]
        document = to_json({"files": dict(texts.files), "terminal": terminal})
        with suppress(OSError, DubioError):
            write_file(path, zlib.compress(document.encode(), 6))
            reports = sorted(path.parent.glob("*.report"), key=lambda own: own.stat().st_mtime_ns)
            for old in reports[:-MOST]:
                old.unlink(missing_ok=True)


@cache
def code_digest() -> str:
    """Return the hash of everything in the package: code, templates, benchmarks, published numbers."""
    digest, root = sha256(), Path(str(files("dubio")))
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} missing"

