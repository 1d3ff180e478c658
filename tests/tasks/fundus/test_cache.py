"""Prepared photographs in the cache: made once, resumed, verified, safe beside other processes;
prepared by several processes: the same pixels, and a crash costs one photograph.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock, Timeout

Image = pytest.importorskip("PIL.Image")

from dubio.core.lazy_rows import MappedRows  # noqa: E402
from dubio.core.specs import hash_file  # noqa: E402
from dubio.tasks.fundus import cache  # noqa: E402
from dubio.tasks.fundus.crop import crop_square, find_disc  # noqa: E402
from dubio.tasks.fundus.photographs import read_photographs  # noqa: E402
from dubio.tasks.sources.locate import cache_dir  # noqa: E402
from tests.tasks.fundus.deadly_worker import prepare_or_die  # noqa: E402


def many(eyes, count):
    for number in range(count):
        eyes.save(f"{number}.png", number)
    eyes.write("labels.csv", "image,grade,patient", *(f"{n},{n % 5},p{n // 2}" for n in range(count)))


def test_prepared_photographs_stay_in_their_file_until_asked_for(eyes):
    many(eyes, 6)
    found = read_photographs(eyes.home, 64)
    assert isinstance(found.images, MappedRows)
    assert isinstance(found.images.array, np.memmap)
    assert found.images.shape == (6, 64, 64, 3)
    assert found.images.dtype == np.uint8
    picture = Image.fromarray(eyes.make(4))
    np.testing.assert_array_equal(found.images[4], crop_square(picture, find_disc(picture).box, 64))


def test_nothing_is_prepared_twice_and_what_changes_is(eyes, monkeypatch):
    many(eyes, 4)
    first = read_photographs(eyes.home, 64)

    def never(*_):
        raise AssertionError

    monkeypatch.setattr(cache, "prepare_all", never)
    monkeypatch.setattr(cache, "_try_hash", never)
    again = read_photographs(eyes.home, 64)
    np.testing.assert_array_equal(np.asarray(first.images), np.asarray(again.images))
    monkeypatch.undo()
    monkeypatch.setenv("DUBIO_CACHE", str(eyes.home.parent / "cache"))
    eyes.save("2.png", 99)
    changed = read_photographs(eyes.home, 64)
    same = [np.array_equal(a, b) for a, b in zip(first.images, changed.images, strict=True)]
    assert same == [True, True, False, True]


def test_files_moved_elsewhere_find_their_prepared_pixels(eyes, tmp_path, monkeypatch):
    many(eyes, 4)
    read_photographs(eyes.home, 64)
    eyes.home.rename(tmp_path / "elsewhere")
    monkeypatch.setattr(cache, "prepare_all", None)
    assert len(read_photographs(tmp_path / "elsewhere", 64)) == 4


def test_verify_sees_through_an_unchanged_size_and_time(eyes):
    many(eyes, 4)
    before = read_photographs(eyes.home, 64)
    path, facts = eyes.home / "1.png", (eyes.home / "1.png").stat()
    raw = bytearray(path.read_bytes())
    raw[-16] ^= 1  # one bit, the same size
    path.write_bytes(raw)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert len(read_photographs(eyes.home, 64)) == len(before)
    known = cache.file_hashes([path])[path]
    assert cache.file_hashes([path], verify=True)[path] == hashlib.sha256(raw).hexdigest() != known


def test_the_cache_is_read_before_another_process_may_put_it_away(eyes, tmp_path, monkeypatch):
    read, held = cache._read, []

    def watched(home):
        with contextlib.suppress(Timeout), FileLock(home.with_suffix(".lock"), timeout=0):
            held.append("free")
        return read(home)

    monkeypatch.setattr(cache, "_read", watched)
    path = eyes.save("one.png", 0)
    found = cache.prepare_files({hash_file(path): path}, 64, processes=1)
    assert held == []
    pixels = np.array(found.images)
    shutil.rmtree(next(home for home in (cache_dir() / "retina").iterdir() if home.is_dir()))
    np.testing.assert_array_equal(found.images, pixels)


def test_verify_makes_a_spoilt_cache_again(eyes, tmp_path):
    many(eyes, 4)
    good = np.asarray(read_photographs(eyes.home, 64).images)
    (array,) = tmp_path.glob("cache/retina/64-*/images.npy")
    spoilt = np.load(array, mmap_mode="r+")
    spoilt[:] = 7
    spoilt.flush()
    assert np.asarray(read_photographs(eyes.home, 64).images).mean() == 7
    np.testing.assert_array_equal(np.asarray(read_photographs(eyes.home, 64, verify=True).images), good)


def test_an_interrupted_preparation_goes_on_and_leaves_nothing_half_written(eyes, tmp_path, monkeypatch):
    many(eyes, 6)
    whole, done = cache.prepare_one, []

    def failing(path, row, rows):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(row)
        return whole(path, row, rows)

    monkeypatch.setattr(cache, "prepare_one", failing)
    with pytest.raises(KeyboardInterrupt):
        read_photographs(eyes.home, 64)
    assert not list(tmp_path.glob("cache/retina/64-*/images.npy"))
    (log,) = tmp_path.glob("cache/retina/.64-*/done.jsonl")
    # a torn last line and a row that never reached the disk are done again
    lines = log.read_text().splitlines()
    spoilt = json.loads(lines[0])["row"]
    np.load(log.with_name("images.npy"), mmap_mode="r+")[spoilt] = 3
    log.write_text("\n".join(lines) + '\n{"row": 5, "dig')
    again = []
    monkeypatch.setattr(cache, "prepare_one", lambda path, row, rows: (again.append(row), whole(path, row, rows))[1])
    resumed = np.asarray(read_photographs(eyes.home, 64).images)
    assert sorted(again) == sorted({*range(6)} - {*done} | {spoilt})
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "fresh"))
    monkeypatch.setattr(cache, "prepare_one", whole)
    np.testing.assert_array_equal(resumed, np.asarray(read_photographs(eyes.home, 64).images))
    assert not list(tmp_path.glob("cache/retina/.64-*"))


def test_a_full_disk_is_refused_before_anything_is_written(eyes, monkeypatch):
    many(eyes, 4)
    usage = cache.shutil.disk_usage(eyes.home)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(Exception, match=r"0\.0 GB in the cache.*DUBIO_CACHE"):
        read_photographs(eyes.home, 64)


def test_hashes_of_other_files_in_a_folder_are_not_forgotten(eyes, monkeypatch):
    one, two = eyes.save("1.png", 1), eyes.save("2.png", 2)
    known = cache.file_hashes([one, two])
    monkeypatch.setattr(cache, "_try_hash", lambda path: pytest.fail("read again"))
    assert cache.file_hashes([one]) == {one: known[one]}
    monkeypatch.chdir(eyes.home)
    assert cache.file_hashes([Path("1.png"), Path("2.png")])[Path("2.png")] == known[two]
    gone = eyes.home / "gone.png"
    assert isinstance(cache.file_hashes([one, gone])[gone], OSError)


def test_processes_give_the_same_as_one_and_survive_a_file_that_kills(eyes, tmp_path, monkeypatch):
    many(eyes, 10)
    (eyes.home / "3.png").write_bytes(b"")
    alone = read_photographs(eyes.home, 64, processes=1)
    monkeypatch.setattr(cache, "JOBS_PER_PROCESS", 2)
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "two"))
    both = read_photographs(eyes.home, 64, processes=2)
    np.testing.assert_array_equal(np.asarray(alone.images), np.asarray(both.images))
    assert alone.problems == both.problems


def test_a_process_that_dies_costs_one_photograph(eyes, tmp_path, monkeypatch):
    many(eyes, 12)
    array = tmp_path / "rows.npy"
    np.lib.format.open_memmap(array, mode="w+", dtype=np.uint8, shape=(12, 64, 64, 3)).flush()
    monkeypatch.setattr(cache, "prepare_in_file", prepare_or_die)
    monkeypatch.setattr(cache, "JOBS_PER_PROCESS", 1)
    outcomes = []
    cache.prepare_all([(eyes.home / f"{n}.png", n) for n in range(12)], array, 2, outcomes.append)
    assert sorted(outcome.row for outcome in outcomes) == [*range(12)]
    (lost,) = [outcome for outcome in outcomes if outcome.sort]
    assert (lost.row, lost.sort) == (2, "unreadable")
    rows = np.load(array)
    assert rows[2].max() == 0
    assert all(rows[row].max() > 0 for row in range(12) if row != 2)


def test_a_script_without_a_main_guard_runs_once(eyes, tmp_path):
    many(eyes, 8)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nprint('started', flush=True)\n"
        "from dubio.tasks.fundus import cache\nfrom dubio.tasks.fundus.photographs import read_photographs\n"
        "cache.JOBS_PER_PROCESS = 1\nprint(len(read_photographs(Path(sys.argv[1]), 64, processes=2)))\n"
    )
    done = subprocess.run([sys.executable, script, eyes.home], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["started", "8"]
