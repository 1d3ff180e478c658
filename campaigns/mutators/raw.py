"""Damage that needs no knowledge of the format: bytes flipped, cut off, repeated, exchanged; and what is packed."""

from __future__ import annotations

import functools
import gzip
import struct
import zlib
from random import Random

from campaigns.mutators import Mutator

SPECIAL = (
    b"\x00",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
)
BLOCK = 1 << 20


def flip(rng: Random, raw: bytes) -> bytes:
    """Flip a few bits."""
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(rng: Random, raw: bytes) -> bytes:
    """Replace a few bytes by others that often mean something."""
    start, piece = _place(rng, raw), rng.choice(SPECIAL)
    return raw[:start] + piece + raw[start + len(piece) :]


def truncate(rng: Random, raw: bytes) -> bytes:
    """Cut off the end, or the beginning."""
    place = rng.choice((0, 1, 4, _place(rng, raw), max(0, len(raw) - 1), max(0, len(raw) - 9)))
    return raw[:place] if rng.random() < 0.8 else raw[place:]


def remove(rng: Random, raw: bytes) -> bytes:
    """Take a piece out of the middle."""
    start = _place(rng, raw)
    return raw[:start] + raw[start + rng.choice((1, 2, 7, 100)) :]


def insert(rng: Random, raw: bytes) -> bytes:
    """Insert random or special bytes."""
    start = _place(rng, raw)
    piece = rng.choice(SPECIAL) * rng.choice((1, 1, 5)) if rng.random() < 0.5 else rng.randbytes(rng.choice((1, 4, 50)))
    return raw[:start] + piece + raw[start:]


def repeat(rng: Random, raw: bytes) -> bytes:
    """Repeat a piece."""
    start, length = _place(rng, raw), rng.choice((1, 3, 16, 200))
    return raw[:start] + raw[start : start + length] * rng.choice((2, 3, 100)) + raw[start + length :]


def exchange(rng: Random, raw: bytes) -> bytes:
    """Copy a piece over another one, as a writer with a wrong offset does."""
    here, there, length = _place(rng, raw), _place(rng, raw), rng.choice((1, 4, 32, 256))
    return raw[:here] + raw[there : there + length] + raw[here + length :]


def other_file(rng: Random, raw: bytes) -> bytes:
    """Return a file of another kind under this name."""
    contents = (
        b"",
        b"\n",
        b"\x00" * 100,
        b"PK\x05\x06" + b"\x00" * 18,
        b"\x93NUMPY",
        b"PAR1PAR1",
        b"{}",
        b"[]",
        b"null",
        b"\xef\xbb\xbf",
        b"\x1f\x8b\x08",
        b"<html></html>",
        b"\xff\xfe" + raw[:500],
        raw.decode("latin-1").encode("utf-16"),
        gzip.compress(raw, mtime=0),
    )
    return rng.choice(contents)


def any_bytes(rng: Random, raw: bytes) -> bytes:
    """Apply one of the above, at times several."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        ways = (flip, flip, overwrite, truncate, remove, insert, repeat, exchange)
        raw = other_file(rng, raw) if rng.random() < 0.04 else rng.choice(ways)(rng, raw)
    return raw


def _place(rng: Random, raw: bytes) -> int:
    """Return a position: anywhere, but often near the beginning or the end, where headers are."""
    if len(raw) < 2:
        return 0
    near = min(len(raw), 256)
    return rng.choice((rng.randrange(len(raw)), rng.randrange(near), len(raw) - 1 - rng.randrange(near)))


@functools.cache
def deflated_zeros(megabytes: int, filler: bytes = b"\x00") -> bytes:
    """Return a raw deflate stream of this many MiB of one byte, made of a block that is repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(filler * BLOCK) + packer.flush(zlib.Z_FULL_FLUSH)
    return first * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def gzip_bomb(start: bytes, megabytes: int, filler: bytes) -> bytes:
    """Return a gzip file that begins with a text and then unpacks to very many bytes; its sum at the end is wrong."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    tail = struct.pack("<II", 0, (len(start) + megabytes * BLOCK) % 2**32)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + head + deflated_zeros(megabytes, filler) + tail


def gzipped(inner: Mutator, *, bombs: tuple[bytes, ...] = (b",", b"\n", b"0", b"1\n", b'"')) -> Mutator:
    """Return a mutator of gzip files: of what they hold, of their own bytes, and bombs.

    Args:
        inner: Mutates what is inside.
        bombs: What a bomb consists of, after the content.
    """

    def mutate(rng: Random, raw: bytes) -> bytes:
        choice = rng.random()
        if choice < 0.02:
            filler = rng.choice(bombs)
            return gzip_bomb(gzip.decompress(raw), rng.choice((200, 2000)) // len(filler), filler)
        content = gzip.decompress(raw)
        if choice < 0.7:
            return gzip.compress(inner(rng, content), mtime=0)
        if choice < 0.8:
            return gzip.compress(content, mtime=0) + rng.choice((raw, b"\x00" * 10, b"garbage", raw[: len(raw) // 2]))
        return any_bytes(rng, raw)

    return mutate
