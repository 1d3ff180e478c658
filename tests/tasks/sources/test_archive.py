from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from dubio.core.errors import BadFile
from dubio.tasks.sources.archive import Bounds, extract


def tar(path: Path, members: dict[str, bytes], *special: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
        for info in special:
            made.addfile(info)
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return path


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    members = {"a/b.txt": b"one", "a/c.txt": b"two", "d.bin": b"three"}
    for archive in (tar(tmp_path / "x.tar.gz", members), zipped(tmp_path / "x.zip", members)):
        out = extract(archive, tmp_path / f"{archive.name}-out")
        assert {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()} == members
    only = extract(tmp_path / "x.zip", tmp_path / "only", keep=r"c\.txt$")
    assert [p.name for p in only.rglob("*") if p.is_file()] == ["c.txt"]


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "a\\..\\evil", "C:/evil"])
def test_no_path_leads_outside(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    for archive in (tar(tmp_path / "x.tar.gz", {name: b"!"}), zipped(tmp_path / "x.zip", {name: b"!"})):
        with pytest.raises(BadFile, match="outside"):
            extract(archive, inner / "out")
        assert list(inner.iterdir()) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("sort", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, sort: bytes) -> None:
    link = tarfile.TarInfo("link")
    link.type = sort
    link.linkname = "/etc/hostname"
    with pytest.raises(BadFile, match="neither file nor folder"):
        extract(tar(tmp_path / "x.tar.gz", {}, link), tmp_path / "out")


def test_sizes_are_bounded_and_nothing_half_opened_stays(tmp_path: Path) -> None:
    archive = tar(tmp_path / "x.tar.gz", {"big": bytes(1 << 20), "more": b""})
    inner = tmp_path / "inner"
    with pytest.raises(BadFile, match="bytes"):
        extract(archive, inner / "out", bounds=Bounds(total_bytes=1 << 19))
    with pytest.raises(BadFile, match="members"):
        extract(archive, inner / "out", bounds=Bounds(members=1))
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(BadFile, match="cannot be opened"):
        extract(cut, inner / "out")
    (tmp_path / "no.zip").write_bytes(b"no zip")
    with pytest.raises(BadFile, match="cannot be opened"):
        extract(tmp_path / "no.zip", inner / "out")
    assert list(inner.iterdir()) == []
