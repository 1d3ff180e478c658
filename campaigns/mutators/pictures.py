"""Damage to PNG chunks, archives (tar, zip), pickles of arrays, idx files and Excel sheets."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from random import Random
from typing import Any

from campaigns.mutators.arrays import unzip, zip_bytes
from campaigns.mutators.documents import HOSTILE_TEXTS
from campaigns.mutators.raw import BLOCK, any_bytes, deflated_zeros
from campaigns.mutators.tables import CELLS

Chunk = tuple[bytes, bytes]
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_chunks(raw: bytes) -> list[Chunk]:
    """Return kind and content of each chunk of a PNG file."""
    chunks, place = [], len(SIGNATURE)
    while place + 8 <= len(raw):
        length, kind = struct.unpack(">I", raw[place : place + 4])[0], raw[place + 4 : place + 8]
        chunks.append((kind, raw[place + 8 : place + 8 + length]))
        place += 12 + length
    return chunks


def png_bytes(chunks: list[Chunk]) -> bytes:
    """Return a PNG file of these chunks, with right sums."""
    parts = (struct.pack(">I", len(c)) + kind + c + struct.pack(">I", zlib.crc32(kind + c)) for kind, c in chunks)
    return SIGNATURE + b"".join(parts)


def zlib_bomb(megabytes: int) -> bytes:
    """Return a zlib stream of very many zeros."""
    return b"\x78\xda" + deflated_zeros(megabytes) + struct.pack(">I", 1 | ((megabytes * BLOCK) % 65521) << 16)


def mutate_png(rng: Random, raw: bytes) -> bytes:
    """Change the header of a picture, its chunks and what is packed in them."""
    if not raw.startswith(SIGNATURE) or rng.random() < 0.25:
        return any_bytes(rng, raw)
    chunks = png_chunks(raw)
    choice = rng.random()
    if choice < 0.4:
        width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
        sizes = (0, 1, 2, 7, 1000, 10_000, 60_000, 2**31 - 1, 2**32 - 1)
        width, height = (rng.choice((side, rng.choice(sizes))) for side in (width, height))
        rest[rng.randrange(5)] = rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 255))
        chunks[0] = (b"IHDR", struct.pack(">IIBBBBB", width, height, *rest))
    elif choice < 0.45:
        header = struct.pack(
            ">IIBBBBB",
            *rng.choice(((20_000, 20_000), (13_000, 13_000), (9_000, 9_000))),
            8,
            rng.choice((0, 2)),
            0,
            0,
            0,
        )
        chunks = [(b"IHDR", header), (b"IDAT", zlib_bomb(rng.choice((1, 400)))), (b"IEND", b"")]
    elif choice < 0.6:
        extra = (
            (b"tRNS", rng.randbytes(rng.choice((0, 1, 2, 6, 300)))),
            (b"PLTE", rng.randbytes(rng.choice((0, 2, 3, 768, 1000)))),
            (b"zTXt", b"k\x00\x00" + zlib_bomb(300)),
            (b"iCCP", b"k\x00\x00" + zlib_bomb(50)),
            (b"iTXt", b"k\x00\x01\x00\x00\x00" + zlib_bomb(100)),
            (b"eXIf", b"MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00" + rng.randbytes(5)),
            (b"eXIf", rng.randbytes(40)),
            (b"gAMA", b""),
            (b"acTL", struct.pack(">II", 2**31, 0)),
            (b"fcTL", rng.randbytes(26)),
            (b"IDAT", rng.randbytes(50)),
            (b"ABCD", b"x"),
        )
        chunks.insert(rng.randrange(1, len(chunks) + 1), rng.choice(extra))
    elif choice < 0.75:
        place = rng.randrange(len(chunks))
        chunks[place : place + 1] = rng.choice(([], [chunks[place]] * 2))
    elif choice < 0.85:
        rng.shuffle(chunks)
    else:
        place = rng.randrange(len(chunks))
        kind, content = chunks[place]
        chunks[place] = (kind, any_bytes(rng, content))
    return png_bytes(chunks)


def mutate_tar(rng: Random, raw: bytes) -> bytes:
    """Change the members, headers and bytes of a gzipped tar archive."""
    if rng.random() < 0.3:
        return any_bytes(rng, raw)
    plain = gzip.decompress(raw)
    if rng.random() < 0.3:
        start = rng.randrange(len(plain) // 512) * 512
        return gzip.compress(plain[:start] + any_bytes(rng, plain[start : start + 512]) + plain[start + 512 :], mtime=0)
    target = io.BytesIO()
    formats = (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)
    with (
        tarfile.open(fileobj=io.BytesIO(plain)) as source,
        tarfile.open(fileobj=target, mode="w", format=rng.choice(formats)) as tar,
    ):
        for member in source:
            content = source.extractfile(member)
            if rng.random() < 0.4:
                _change_member(rng, member)
            try:
                tar.addfile(member, content if member.isreg() else None)
            except (ValueError, OSError, UnicodeError, struct.error):
                continue
    return gzip.compress(target.getvalue(), mtime=0)


def _change_member(rng: Random, member: Any) -> None:
    names = (
        *HOSTILE_TEXTS,
        "../out",
        "/etc/x",
        "a/../../b",
        "C:/x",
        "a\\b",
        "x" * 300,
        "a/" * 3000,
        "\udcff",
        member.name + "/x",
    )
    kinds = (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.DIRTYPE,
        tarfile.REGTYPE,
        b"9",
        tarfile.GNUTYPE_SPARSE,
    )
    change = rng.randrange(4)
    if change == 0:
        member.name = rng.choice(names)[:8000]
    elif change == 1:
        member.type, member.linkname = rng.choice(kinds), rng.choice(names)[:80]
    elif change == 2:
        member.size = rng.choice((0, 1, 10**6, 2**40))
    else:
        member.pax_headers = {
            rng.choice(("size", "path", "GNU.sparse.major", "GNU.sparse.map", "hdrcharset")): rng.choice(CELLS)[:3000]
        }


def mutate_archive(rng: Random, raw: bytes) -> bytes:
    """Change a zip archive of files: names, members, bytes."""
    if rng.random() < 0.4:
        return any_bytes(rng, raw)
    members = unzip(raw)
    place = rng.randrange(len(members))
    name = rng.choice(
        (
            *HOSTILE_TEXTS,
            "../out",
            "/etc/x",
            "a/../../b",
            "C:/x",
            "x" * 300,
            members[0][0],
            members[0][0] + "/x",
            "a/" * 2000,
        )
    )
    members[place] = (name[:8000] or "x", members[place][1])
    return zip_bytes(members, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA)))


def mutate_pickle(rng: Random, raw: bytes) -> bytes:
    """Change the values of a pickled batch of images, or its instructions."""
    if rng.random() < 0.5:
        return any_bytes(rng, raw)
    batch = pickle.loads(raw)  # a seed that this campaign wrote
    key = rng.choice(list(batch))
    values: tuple[Any, ...] = (
        None,
        [],
        [1.5],
        ["a"],
        [10**30],
        [True],
        [-1],
        [10**6],
        {},
        (),
        b"x" * 3072,
        "x" * 3072,
        {"a": []},
        [[0]] * 20,
        10**400,
        1e400,
        batch[key][:-1],
        batch["data"].astype("f4"),
        batch["data"].T,
        batch["data"][:0],
        batch["data"].reshape(-1),
        batch["data"][0, 0],
    )
    choice = rng.random()
    if choice < 0.6:
        batch[key] = rng.choice(values)
    elif choice < 0.7:
        del batch[key]
    elif choice < 0.8:
        batch[rng.choice((3, None, (1,), b"data", "\ud800"))] = batch[key]
    elif choice < 0.9:
        deep: Any = 1
        for _ in range(rng.choice((50, 100, 200))):
            deep = [deep]
        batch[key] = deep
    else:
        batch = rng.choice(([batch], 3, None, batch[key]))
    try:
        return pickle.dumps(batch, rng.choice((0, 1, 2, 2, 3, 4, 5)))
    except (UnicodeEncodeError, RecursionError):
        return pickle.dumps({})


def mutate_idx(rng: Random, raw: bytes) -> bytes:
    """Change the header of a gzipped idx file, or its bytes."""
    plain = gzip.decompress(raw)
    if rng.random() < 0.5:
        fields = list(struct.unpack(">IIII", plain[:16]))
        fields[rng.randrange(4)] = rng.choice((0, 1, 27, 2**31, 2**32 - 1, 0x801, 10**6))
        plain = struct.pack(">IIII", *fields) + plain[16:]
        if rng.random() < 0.1:
            packed = zlib.compressobj(9, zlib.DEFLATED, -15)
            head = packed.compress(struct.pack(">IIII", 0x803, 2**32 - 1, 28, 28)) + packed.flush(zlib.Z_FULL_FLUSH)
            return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + head + deflated_zeros(3000)
        return gzip.compress(plain, mtime=0)
    return any_bytes(rng, raw) if rng.random() < 0.6 else gzip.compress(any_bytes(rng, plain), mtime=0)


_ENTITIES = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in zip("abcdefghi", "bcdefghij", strict=True))
    + "]>"
)


def mutate_sheet(rng: Random, raw: bytes) -> bytes:
    """Change the XML of an Excel sheet: cells, references, shared texts, entities; or its archive."""
    if rng.random() < 0.25:
        return any_bytes(rng, raw)
    members = unzip(raw)
    place = rng.randrange(len(members))
    name, content = members[place]
    text = content.decode()
    changes = (
        lambda: text.replace('r="A', f'r="{rng.choice(("ZZZZZZZZ", "XFD", "ZZZZZ", "AAAA", "", "é"))}', 1),
        lambda: text.replace(
            "<v>0</v>", f"<v>{rng.choice(('-1', '9' * 400, '1e400', '', 'x', '99999', '1.5'))}</v>", 1
        ),
        lambda: text.replace("?>", "?>" + _ENTITIES, 1).replace("<t>", "<t>&j;", 1).replace("<v>", "<v>&j;", 1),
        lambda: text.replace("<row", "<a>" * rng.choice((100, 20_000)) + "<row", 1),
        lambda: any_bytes(rng, content).decode("latin-1"),
        lambda: text.replace("<t>", "<t>" + "x" * 10**6, 1),
        lambda: text.replace("<row", '<row r="9"/>' * 5000 + "<row", 1),
        lambda: text.replace("utf-8", rng.choice(("utf-16", "utf-7", "cp037", "none"))),
        lambda: text.replace("image", rng.choice(("", "level"))),
    )
    if rng.random() < 0.15:
        members[place] = (rng.choice(("xl/worksheets/sheet2.xml", "xl/x.xml", "xl/worksheets/sheet0.xml")), content)
    else:
        members[place] = (name, rng.choice(changes)().encode("utf-8", "replace"))
    return zip_bytes(members)
