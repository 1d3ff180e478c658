"""The log: entries survive everything but damage, and damage is recognised."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from dubio.core.errors import CorruptFile
from dubio.serving.log_file import LogFailed, LogFile

FRAMES = ([{"n": 1}], [{"n": 2, "text": "zwölf\nΔ\u2028"}, {"n": 3}], [{"n": 4}])


@pytest.fixture
def no_flush(monkeypatch):
    """Hundreds of logs, whose bytes alone matter."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def opened(path):
    entries = []
    log = LogFile(path, "test log", lambda entry, position: entries.append((entry, position)))
    return log, entries


def written(path):
    log, _ = opened(path)
    positions = [position for frame in FRAMES for position in log.append(frame)]
    log.close()
    return positions


def test_entries_are_read_again_in_order_and_by_position(tmp_path):
    positions = written(tmp_path / "log")
    log, entries = opened(tmp_path / "log")
    assert entries == list(zip([entry for frame in FRAMES for entry in frame], positions, strict=True))
    for entry, position in entries:
        assert log.read(position) == entry
    assert log.size == (tmp_path / "log").stat().st_size
    assert log.cut is None
    log.close()


def test_each_line_has_the_checksum_of_the_chain(tmp_path):
    written(tmp_path / "log")
    previous = b"0" * 32
    lines = (tmp_path / "log").read_bytes().splitlines()
    assert len(lines) == 4
    for line in lines:
        digits, payload = line.split(b" ", 1)
        assert digits == hashlib.sha256(previous + payload).hexdigest()[:32].encode()
        assert isinstance(json.loads(payload), list)
        previous = digits


def test_a_torn_tail_of_any_length_is_cut_off_and_set_aside(tmp_path, no_flush):
    written(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    last = content[:-1].rindex(b"\n") + 1
    for size in range(last + 1, len(content)):
        path = tmp_path / f"log{size}"
        path.write_bytes(content[:size])
        log, entries = opened(path)
        assert [entry["n"] for entry, _ in entries] == [1, 2, 3]
        assert log.cut == (last, size - last, tmp_path / f"log{size}.torn-{last}")
        assert log.cut.path.read_bytes() == content[last:size]
        log.append([{"n": 5}])
        log.close()
        log, entries = opened(path)
        assert [entry["n"] for entry, _ in entries] == [1, 2, 3, 5]
        log.close()


def test_a_last_frame_of_which_some_blocks_are_missing_is_torn(tmp_path):
    written(tmp_path / "log")
    content = bytearray((tmp_path / "log").read_bytes())
    last = content[:-1].rindex(b"\n") + 1
    content[last + 5 : last + 20] = bytes(15)
    (tmp_path / "log").write_bytes(content)
    log, entries = opened(tmp_path / "log")
    assert (log.cut.offset, len(entries)) == (last, 3)
    log.close()


def test_damage_before_the_last_frame_is_refused_at_every_byte(tmp_path, no_flush):
    written(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    last = content[:-1].rindex(b"\n") + 1
    path = tmp_path / "log"
    for index in range(last):
        for change in (content[index] ^ 1, 10):
            if change != content[index]:
                path.write_bytes(content[:index] + bytes([change]) + content[index + 1 :])
                with pytest.raises(CorruptFile, match="log"):
                    opened(path)
    assert not list(tmp_path.glob("*.torn-*"))


def test_frames_that_are_removed_exchanged_or_repeated_are_refused(tmp_path):
    written(tmp_path / "whole")
    header, first, second, third = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    for lines in ((header, second, third), (header, second, first, third), (header, first, first, second, third)):
        (tmp_path / "log").write_bytes(b"".join(lines))
        with pytest.raises(CorruptFile, match="damaged at byte"):
            opened(tmp_path / "log")


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\0" * 100])
def test_another_file_is_refused_and_unchanged(tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    if content:
        with pytest.raises(CorruptFile, match="not a test log"):
            opened(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == content


def test_another_kind_of_log_is_refused(tmp_path):
    written(tmp_path / "log")
    with pytest.raises(CorruptFile, match="not a row log that this dubio can read"):
        LogFile(tmp_path / "log", "row log", lambda entry, position: None)


def test_after_a_failed_flush_nothing_is_acknowledged_any_more(tmp_path, monkeypatch):
    log, _ = opened(tmp_path / "log")
    log.append([{"n": 1}])

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(LogFailed, match="the disk is full"):
            log.append([{"n": 2}])
    with pytest.raises(LogFailed, match="the disk is full"):
        log.append([{"n": 3}])
    log.close()


def test_a_frame_is_flushed_before_append_returns(tmp_path, monkeypatch):
    log, _ = opened(tmp_path / "log")
    sizes = []
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (sizes.append(os.fstat(descriptor).st_size), flush(descriptor)))
    log.append([{"n": 1}])
    assert sizes == [log.size]
    log.close()
