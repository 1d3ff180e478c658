"""Extract an archive from an untrusted source: no path leaves its folder, sizes are bounded, all or nothing."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from dubio.core.errors import BadFile
from dubio.core.files import atomic_directory


@dataclass(frozen=True)
class Bounds:
    """Limits of an archive."""

    members: int = 300_000
    total_bytes: int = 4 << 30


def extract(archive: Path, folder: Path, *, keep: str = "", bounds: Bounds | None = None) -> Path:
    """Extract regular files into a folder that does not exist yet.

    Args:
        archive: A tar.gz, tgz, zip or wheel file.
        folder: Exists afterwards only if everything was extracted.
        keep: A regular expression; members whose name it does not match are skipped.
        bounds: Its limits.

    Raises:
        BadFile: For a name that leads outside, a link, too many members or bytes, or a broken archive.
    """
    try:
        with atomic_directory(folder) as scratch, _members(archive) as members:
            _extract_members(archive, members, scratch, keep, bounds or Bounds())
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as fault:
        raise BadFile(f"{archive.name} cannot be opened: {fault}.") from fault
    return folder


def _extract_members(archive: Path, members: Members, folder: Path, keep: str, limit: Bounds) -> None:
    written = 0
    for count, (name, stream) in enumerate(members, start=1):
        if count > limit.members:
            raise BadFile(f"{archive.name} holds more than {limit.members:,} members; it is not opened.")
        target = folder.joinpath(*_inside(archive, name).parts)
        if stream is None or not re.search(keep, name):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with stream, target.open("wb") as file:
            while chunk := stream.read(1 << 16):
                written += len(chunk)
                if written > limit.total_bytes:
                    raise BadFile(f"{archive.name} holds more than {limit.total_bytes:,} bytes; not opened.")
                file.write(chunk)


def _inside(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or (path.parts and ":" in path.parts[0]):
        raise BadFile(f"{archive.name} holds {name!r}, which leads outside its folder; it is not opened.")
    return path


Members = Iterator[tuple[str, IO[bytes] | None]]


@contextmanager
def _members(archive: Path) -> Iterator[Members]:
    """Yield the names and contents of the members; None for a folder."""
    if archive.name.endswith((".zip", ".whl")):
        with zipfile.ZipFile(archive) as packed:
            yield _zip_members(packed)
    else:
        with tarfile.open(archive, "r:gz") as tar:
            yield _tar_members(archive, tar)


def _zip_members(packed: zipfile.ZipFile) -> Members:
    for info in packed.infolist():
        yield info.filename, None if info.is_dir() else packed.open(info)


def _tar_members(archive: Path, tar: tarfile.TarFile) -> Members:
    for info in tar:
        if not (info.isfile() or info.isdir()):
            raise BadFile(f"{archive.name} holds {info.name!r}, which is neither file nor folder; it is not opened.")
        yield info.name, tar.extractfile(info) if info.isfile() else None
