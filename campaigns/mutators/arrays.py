"""Damage to npy, npz and safetensors: headers, types, shapes, members, values."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from random import Random
from typing import Any

import numpy as np

from campaigns.mutators.documents import HOSTILE_TEXTS, mutate_json
from campaigns.mutators.raw import BLOCK, any_bytes, deflated_zeros

DESCRIPTIONS = (
    "|O",
    "<f8",
    ">f8",
    "<f4",
    "<f2",
    "<c16",
    "<i8",
    "<u8",
    ">u4",
    "|b1",
    "|S8",
    "<U4",
    ">U4",
    "<M8[ns]",
    "<m8[s]",
    "|V16",
    "<U0",
    "|S0",
    "<U1000000000",
    "|V0",
    "f16",
    "x",
    "",
    "[('a', '<f8')]",
    "<f8,<i4",
    "<f3",
    "object",
    "1000000000<f8",
    "('<f8', (1000, 1000))",
)
SHAPES = (
    "()",
    "(0,)",
    "(0, 3)",
    "(3, 0)",
    "(-1,)",
    "(-1, 3)",
    "(1.5,)",
    "(True,)",
    "('a',)",
    "(9223372036854775807,)",
    "(4294967296, 4294967296)",
    "(" + "1, " * 65 + ")",
    "(10**400,)",
    f"({'9' * 400},)",
    "(1000000000, 3)",
    "(2**40,)",
    "None",
    "[3]",
    "3",
    "(1, 1, 1, 1, 1)",
)
VALUES = (
    np.nan,
    np.inf,
    -np.inf,
    -1.0,
    0.0,
    1.0,
    2.0,
    1e308,
    -1e308,
    5e-324,
    1e-320,
    1e39,
    1e-45,
    0.5,
    3.0,
    -0.0,
    2.0**53,
    1e19,
    9.3e18,
    1.0000001,
)


def npy_bytes(array: Any) -> bytes:
    """Return an array as an npy file."""
    target = io.BytesIO()
    np.lib.format.write_array(target, np.asanyarray(array), allow_pickle=False)
    return target.getvalue()


def change_values(rng: Random, array: Any) -> Any:
    """Put special values into some entries, a row, or all."""
    changed = np.array(array)
    if changed.dtype.kind == "U" and changed.size:
        texts = [rng.choice(HOSTILE_TEXTS)[:2000] if rng.random() < 0.3 else text for text in changed.ravel().tolist()]
        return np.array(texts).reshape(changed.shape)
    if changed.dtype.kind not in "fiub" or not changed.size:
        return changed
    flat = changed.reshape(-1)
    places = rng.choice(([rng.randrange(flat.size)], range(min(flat.size, 3)), range(flat.size)))
    value = rng.choice(VALUES)
    with np.errstate(all="ignore"):
        for place in places:
            flat[place] = np.array(value).astype(changed.dtype)
    return changed


def _change_type(rng: Random, array: Any) -> Any:
    kinds = ("f2", "f4", ">f8", "g", "c16", "i1", "u1", "i8", ">i4", "u8", "?", "S12", "U12", "M8[s]", "V8", "f8,i4")
    with np.errstate(all="ignore"):
        try:
            return array.astype(rng.choice(kinds))
        except (TypeError, ValueError, OverflowError):
            return array.astype("U12")


def _change_shape(rng: Random, array: Any) -> Any:
    ways = (
        lambda: array[None],
        lambda: array[..., None],
        lambda: array.T,
        lambda: array.reshape(-1),
        lambda: array[:0],
        lambda: array[:1],
        lambda: array[..., :0] if array.ndim else array,
        lambda: np.concatenate([array, array]) if array.ndim else array,
        lambda: np.asfortranarray(array),
        lambda: array.reshape(1, 1, *array.shape),
        lambda: np.squeeze(array),
        lambda: array.reshape(-1)[0],
        lambda: array[..., :1] if array.ndim else array,
        lambda: array[::-1] if array.ndim else array,
        lambda: array[:-1] if array.ndim else array,
    )
    try:
        return rng.choice(ways)()
    except IndexError:
        return array


def _change_header(rng: Random, raw: bytes) -> bytes:
    """Write another header before the same data."""
    version, length = raw[6], struct.unpack("<H", raw[8:10])[0]
    header, data = raw[10 : 10 + length].decode("latin-1"), raw[10 + length :]
    fields: Any = eval(header, {"__builtins__": {}})  # dubio's own header of the seed, never a user's
    descr, order, shape = repr(fields["descr"]), str(fields["fortran_order"]), repr(fields["shape"])
    choice = rng.random()
    if choice < 0.35:
        shape = rng.choice(SHAPES)
    elif choice < 0.7:
        text = rng.choice(DESCRIPTIONS)
        descr = text if text[:1] in "[(" and text else repr(text)
    elif choice < 0.8:
        order = rng.choice(("True", "1", "None", "'yes'", "0.5"))
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if choice > 0.9:
        odd = (
            "(" * 5000,
            "{}",
            "",
            text + ", 1",
            "[" * 200 + "]" * 200,
            text.replace("'shape'", "'shap'"),
            "-" * 9000 + "1",
            text[:-3],
            "\x00",
        )
        text = rng.choice(odd)
    packed = text.encode("latin-1", "replace") + b" " * rng.choice((0, 20)) + b"\n"
    if rng.random() < 0.1:
        version = rng.choice((0, 2, 3, 4, 255))
    size = struct.pack("<I", len(packed)) if version in (2, 3) else struct.pack("<H", len(packed) % 65536)
    return raw[:6] + bytes([version, 0]) + size + packed + data


def mutate_npy(rng: Random, raw: bytes) -> bytes:
    """Change the header, type, shape or values of an npy file; at times code points that are none."""
    choice = rng.random()
    if choice < 0.3:
        return _change_header(rng, raw)
    if choice < 0.4:
        return any_bytes(rng, raw)
    array = np.load(io.BytesIO(raw))
    if array.dtype.kind == "U" and array.size and rng.random() < 0.4:
        points = np.array(array).view(np.uint32).copy()
        points.reshape(-1)[rng.randrange(points.size)] = rng.choice(
            (0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF, 0, 0x10FFFF, 0xFFFE)
        )
        return npy_bytes(np.array(array)).split(b"\n", 1)[0] + b"\n" + points.tobytes()
    change = rng.choice((change_values, change_values, _change_type, _change_shape))
    return npy_bytes(change(rng, array))


def zip_bytes(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive; the same members give the same bytes, and a name may occur twice."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a name occurs twice is intended
                archive.writestr(info, content)
    return target.getvalue()


def unzip(raw: bytes) -> list[tuple[str, bytes]]:
    """Return the members of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def zip_bomb(name: str, megabytes: int, declared: int, kind: str = "|u1", shape: str = "") -> bytes:
    """Return an archive of one array that unpacks to very many zeros.

    Args:
        name: The array's file.
        megabytes: What it unpacks to.
        declared: The bytes that the archive's directory states.
        kind: The type in the array's header.
        shape: The shape in its header; one axis of all bytes where omitted.
    """
    head = (
        f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape or f'({megabytes * BLOCK},)'}, }}".ljust(117)
        + "\n"
    )
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
    packed = b"\x00" + struct.pack("<HH", len(start), 0xFFFF ^ len(start)) + start + deflated_zeros(megabytes)
    text = name.encode()
    fields = (20, 0, 8, 0, 33, 0, len(packed), min(declared + len(start), 2**32 - 1), len(text), 0)
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", *fields) + text + packed
    central = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", 20, *fields, 0, 0, 0, 0, 0) + text
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def _any_bomb(rng: Random, name: str) -> bytes:
    """Return an archive of one array that unpacks to very many bytes, declared or not."""
    megabytes = rng.choice((300, 3000))
    size = megabytes * BLOCK
    kind, width = rng.choice((("|u1", 1), ("<f8", 8), ("<f4", 4)))
    shape = rng.choice((f"({size // width},)", f"({size // width // 10}, 10)", f"(1, {size // width // 4}, 4)"))
    return zip_bomb(name, megabytes, rng.choice((size, size, 1000)), kind, shape)


def _rename_raw(rng: Random, raw: bytes, name: str) -> bytes:
    """Give a member a name of bytes that no text has, in both directories of the archive."""
    old = name.encode()
    new = (rng.choice((b"\xff\xfe\xed\xa0\x80", b"\xc3\x28", b"\x00\x01", b"\xf4\x90\x80\x80")) * 20)[
        : len(old) - 4
    ] + old[-4:]
    changed = raw.replace(old, new)
    if rng.random() < 0.7:  # the flag that says that names are UTF-8
        for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            place = changed.find(mark)
            while place >= 0:
                changed = changed[: place + offset + 1] + b"\x08" + changed[place + offset + 2 :]
                place = changed.find(mark, place + 4)
    return changed


def mutate_zip(rng: Random, raw: bytes, mutate_member: Any = mutate_npy) -> bytes:
    """Change a member, the names and the directory of an archive of arrays."""
    members = unzip(raw)
    place = rng.randrange(len(members))
    name, content = members[place]
    choice = rng.random()
    if choice < 0.55:
        members[place] = (name, mutate_member(rng, content))
    elif choice < 0.65:
        names = (
            *HOSTILE_TEXTS[:40],
            "labels.npy",
            "probs.npy",
            "x.npy",
            "y.npy",
            "a/b.npy",
            "../x.npy",
            "ids.npy",
            "\ud800.npy",
            name.upper(),
        )
        members[place] = (rng.choice(names)[:5000].encode("utf-8", "replace").decode() or "x", content)
    elif choice < 0.7:
        members.pop(place)
    elif choice < 0.75:
        members.insert(0, (name, rng.choice(members)[1]))
    elif choice < 0.8:
        members.append(
            (rng.choice(("extra.npy", "readme.txt", "folder/", "group.npy", "ids.npy")), rng.choice(members)[1])
        )
    elif choice < 0.84:
        return _rename_raw(rng, raw, name)
    elif choice < 0.86:
        return _any_bomb(rng, name)
    else:
        return any_bytes(rng, raw)
    return zip_bytes(
        members, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    )


def mutate_safetensors(rng: Random, raw: bytes) -> bytes:
    """Change the header of a safetensors file, its length, or the numbers behind it."""
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = raw[8 : 8 + length], raw[8 + length :]
    choice = rng.random()
    if choice < 0.6:
        header = mutate_json(rng, header)
    elif choice < 0.7:
        wrong = rng.choice((0, 1, length - 1, length + 8, 2**31, 2**40, 2**63, 2**64 - 1))
        return struct.pack("<Q", wrong) + header + data
    elif choice < 0.85:
        changed = bytearray(data)
        place = rng.randrange(max(1, len(changed) // 8)) * 8
        changed[place : place + 8] = struct.pack("<d", rng.choice(VALUES)) if rng.random() < 0.5 else rng.randbytes(8)
        data = bytes(changed)
    else:
        return any_bytes(rng, raw)
    return struct.pack("<Q", len(header)) + header + data
