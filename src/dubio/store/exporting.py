"""Runs taken out of a store: as a directory that is itself a store, or as one archive of such a directory.

Only regular files go in, under relative names built from ids and checked names, so that no archive of ours can write
outside the directory it is unpacked in. Times and owners are left out: the same runs give the same archive.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from dubio.core.errors import StoreError, UserError
from dubio.store.atomic import storing
from dubio.store.runs import Store
from dubio.store.sweeping import pictured, referenced

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip archive can hold."""


def export(store: Store, names: Sequence[str], target: Path) -> tuple[Path, ...]:
    """Copy runs with everything they are made of.

    Args:
        store: Where they are.
        names: The names of their manifests, in full.
        target: A path that ends in ``.zip`` or ``.tar``, or a directory that does not exist yet.

    Returns:
        The relative paths of what was written.

    Raises:
        UserError: When the target exists.
        CorruptFile: When something to be exported is not what was written.
        StoreError: When the target cannot be written.
    """
    if target.exists():
        raise UserError(f"{str(target)!r} exists already; name a new file or directory.")
    files = tuple(_files(store, names))
    writer = {".zip": _write_zip, ".tar": _write_tar}.get(target.suffix, _write_directory)
    with storing(target):
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            writer(store.path, files, fresh)
            os.rename(fresh, target)
        finally:
            if fresh.is_dir():
                shutil.rmtree(fresh, ignore_errors=True)
            else:
                fresh.unlink(missing_ok=True)
    return files


def _files(store: Store, names: Sequence[str]) -> Iterable[Path]:
    """Every file of these runs, relative to the store, sorted; each is verified first."""
    kept = referenced(store, names)
    found = [store.layout.header, *(store.layout.manifests / f"{name}.json" for name in names)]
    for room, identifiers in kept.items():
        for identifier in sorted(identifiers):
            directory = store.layout.directory(room, identifier)
            if not directory.is_dir():
                continue  # a run that failed; its manifest says so
            store.verify(room, identifier)
            found += sorted(path for path in directory.iterdir() if path.is_file() and not path.is_symlink())
    found += _pictures(store, names)
    for path in found:
        relative = path.relative_to(store.path)
        if ".." in relative.parts:
            raise StoreError(f"{str(path)!r} lies outside the store.")
        yield relative


def _pictures(store: Store, names: Sequence[str]) -> list[Path]:
    """The small copies of test images that these runs show."""
    directories = [store.layout.pictures / fingerprint for fingerprint in sorted(pictured(store, names))]
    return [path for directory in directories if directory.is_dir() for path in sorted(directory.glob("*.png"))]


def _write_directory(root: Path, files: Iterable[Path], target: Path) -> None:
    for relative in files:
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / relative, target / relative)


def _write_zip(root: Path, files: Iterable[Path], target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for relative in files:
            entry = zipfile.ZipInfo(str(PurePosixPath(relative)), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as sink, (root / relative).open("rb") as source:
                shutil.copyfileobj(source, sink)


def _write_tar(root: Path, files: Iterable[Path], target: Path) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for relative in files:
            content = (root / relative).read_bytes()
            entry = tarfile.TarInfo(str(PurePosixPath(relative)))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
