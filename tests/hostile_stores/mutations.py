"""Changes to a store, as damage and as malice would make them: the latter with right digests and CRCs."""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from crc32c import crc32c

from quorate.backup.objects.stored_documents import seal
from quorate.backup.segments.layout import FRAME_HEAD_SIZE_BYTES, PREAMBLE_SIZE_BYTES, TRAILER_MAGIC, TRAILER_SIZE_BYTES
from tests.hostile_stores.seed_store import SeedStore

_INTEGERS = [-1, 0, 1, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**18, 10**30, -(2**63)]
_TEXTS = [
    "",
    "x" * 300,
    "../../victim",
    "/etc/passwd",
    "\x1b[2J",
    "a\nb",
    "\u202e",
    "\ud800",
    "zstd",
    "..",
    "a/b",
    "%s{0}",
]
_OTHERS: list[Any] = [None, True, 1.5, 1e308, [], {}, [[]], "@deep", "@bytes", [0] * 1000]
_FRAME_FIELDS = struct.Struct(">B3xIIIqq")
_FRAME_HEAD = struct.Struct(">4sB3xIIIqqI")


def mutate(store: SeedStore, folder: str, random: Random) -> str:
    """Change something in this folder of the store; what was changed, for a report."""
    below = f"{store.folder / folder}/"
    path = random.choice([each for each in store.pristine if str(each).startswith(below)])
    change = random.choice([_damage, _forge, _forge, _forge, _forge, _forge, _move])
    return f"{path.relative_to(store.folder)}: {change(store, path, random)}"


def _damage(store: SeedStore, path: Path, random: Random) -> str:
    data = damaged(path.read_bytes(), random)
    path.write_bytes(data)
    return f"damaged, {len(data)} bytes"


def damaged(data: bytes, random: Random) -> bytes:
    at, length = random.randrange(len(data) + 1), random.choice([1, 2, 8, 100, 5000])
    piece = data[at : at + length]
    match random.randrange(7):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + length :]
        case 2:
            return data[:at] + piece * random.choice([2, 3, 50]) + data[at + length :]
        case 3:
            return data[:at] + random.randbytes(len(piece)) + data[at + length :]
        case 4:
            return data + random.randbytes(length)
        case 5:
            other = random.randrange(len(data) + 1)
            return data[:at] + data[other:]
        case _:
            flipped = bytearray(data or b"\0")
            for _ in range(random.choice([1, 1, 1, 5])):
                flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
            return bytes(flipped)


def _forge(store: SeedStore, path: Path, random: Random) -> str:
    data = path.read_bytes()
    if path.suffix == ".qseg":
        data, what = forged_segment(data, random)
    elif data.startswith(b"{") and path.suffix == ".json":
        data, what = forged_document(data, random)
    elif path.name.endswith(".zst"):
        content = damaged(data[32:], random)
        data, what = hashlib.sha256(content).digest() + content, "map"
    else:
        data, what = damaged(data, random), "damaged"
    path.write_bytes(data)
    return f"forged: {what}"


def forged_document(data: bytes, random: Random) -> tuple[bytes, str]:
    document = json.loads(data)
    document.pop("sha256", None)
    what = "; ".join(_change_value(document, random) for _ in range(random.choice([1, 1, 1, 2, 4])))
    return seal(_encoded(document)), what


def _encoded(document: Any) -> bytes:
    text = json.dumps(document).encode()
    return text.replace(b'"@deep"', b"[" * 20_000 + b"]" * 20_000).replace(b'"@bytes"', b'"\xff\xfe"')


def _change_value(document: Any, random: Random) -> str:
    """Somewhere inside, deeper places as likely as others."""
    places: list[tuple[Any, Any, str]] = []

    def walk(value: Any, way: str) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in list(items):
            places.append((value, key, f"{way}.{key}"))
            walk(inner, f"{way}.{key}")

    walk(document, "$")
    if not places:
        return "nothing"
    holder, key, way = random.choice(places)
    old = holder[key]
    choices: list[Callable[[], Any]] = [lambda: random.choice(_OTHERS), lambda: random.choice(places)[0]]
    if isinstance(old, int):
        choices += [lambda: random.choice(_INTEGERS)] * 6 + [lambda: old + random.choice([-1, 1, 7, -100])] * 6
    elif isinstance(old, str):
        choices += [lambda: random.choice(_TEXTS)] * 6 + [lambda: old[:-1], old.upper, lambda: old + "x"]
    elif isinstance(old, list) and old:
        choices += [lambda: old * 2, lambda: old[::-1], lambda: old[1:], lambda: old[:-1], lambda: old * 200] * 2
    if random.random() < 0.1:
        if isinstance(holder, dict):
            del holder[key]
        return f"{way} deleted"
    new = json.loads(json.dumps(random.choice(choices)()))
    holder[key] = new
    return f"{way} = {json.dumps(new)[:60]}"


def forged_segment(data: bytes, random: Random) -> tuple[bytes, str]:
    """With every CRC right again, so that what is inside is looked at."""
    header_size = int.from_bytes(data[8:12], "big")
    footer_size = int.from_bytes(data[-TRAILER_SIZE_BYTES:][:4], "big")
    first = PREAMBLE_SIZE_BYTES + header_size
    header, frames, footer = (
        data[PREAMBLE_SIZE_BYTES:first],
        data[first : -footer_size - 12],
        data[-footer_size - 12 : -12],
    )
    match random.randrange(4):
        case 0:
            document = json.loads(header)
            what = f"header {_change_value(document, random)}"
            header = _encoded(document)
        case 1:
            document = json.loads(footer)
            what = f"footer {_change_value(document, random)}"
            footer = _encoded(document)
        case _:
            frames, what = _forged_frames(frames, random)
    return _joined(data[4:8], header, frames, footer), what


def _joined(version: bytes, header: bytes, frames: bytes, footer: bytes) -> bytes:
    size = len(header).to_bytes(4, "big")
    preamble = b"QSEG" + version + size + crc32c(header, crc32c(version + size)).to_bytes(4, "big")
    footer_size = len(footer).to_bytes(4, "big")
    trailer = footer_size + crc32c(footer_size, crc32c(footer)).to_bytes(4, "big") + TRAILER_MAGIC
    return preamble + header + frames + footer + trailer


def _forged_frames(frames: bytes, random: Random) -> tuple[bytes, str]:
    parts: list[tuple[list[int], bytes]] = []
    position = 0
    while position + FRAME_HEAD_SIZE_BYTES <= len(frames):
        _, *fields, _ = _FRAME_HEAD.unpack_from(frames, position)
        position += FRAME_HEAD_SIZE_BYTES
        parts.append((fields, frames[position : position + fields[1]]))
        position += fields[1]
    at = random.randrange(len(parts))
    fields, stored = parts[at]
    what = "frames swapped"
    match random.randrange(4):
        case 0:
            index = random.randrange(6)
            fields[index] = random.choice([0, 1, 2, 3, 255, 2**31, 2**32 - 1, -1, 2**63 - 1, fields[index] + 1])
            what = f"frame field {index} = {fields[index]}"
        case 1:
            stored = _forged_batches(stored, random) if fields[0] == 0 else damaged(stored, random)
            fields[1] = len(stored)
            fields[2] = len(stored) if fields[0] == 0 and random.random() < 0.9 else fields[2]
            what = "batches"
        case 2:
            parts.insert(at, parts[random.randrange(len(parts))])
        case _:
            parts[0], parts[at] = parts[at], parts[0]
    parts[at] = fields, stored
    return b"".join(_frame(fields, stored) for fields, stored in parts), what


def _frame(fields: list[int], stored: bytes) -> bytes:
    limits = [2**8, 2**32, 2**32, 2**32]
    small = [field % limit for field, limit in zip(fields, limits, strict=False)]
    large = [max(-(2**63), min(field, 2**63 - 1)) for field in fields[4:]]
    packed = _FRAME_FIELDS.pack(*small, *large)
    return b"QFRM" + packed + crc32c(stored, crc32c(packed)).to_bytes(4, "big") + stored


def _forged_batches(stored: bytes, random: Random) -> bytes:
    """One field or byte of the first batch; its CRC is right again."""
    if len(stored) < 61 or random.random() < 0.1:
        return damaged(stored, random)
    data = bytearray(stored)
    size = min(int.from_bytes(data[8:12], "big") + 12, len(data))
    if random.random() < 0.6:
        offset, width = random.choice(
            [(0, 8), (8, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (57, 4)]
        )
        data[offset : offset + width] = random.choice(
            [bytes(width), b"\xff" * width, b"\x7f" + b"\xff" * (width - 1), random.randbytes(width)]
        )
    else:
        data[random.randrange(61, size) if size > 61 else 0] = random.randrange(256)
    if data[16] == 2:
        data[17:21] = crc32c(bytes(data[21:size])).to_bytes(4, "big")
    return bytes(data)


def _move(store: SeedStore, path: Path, random: Random) -> str:
    """The file system's own tricks: other files in its place, links, pipes, folders, odd names."""
    other = random.choice(list(store.pristine))
    match random.randrange(7):
        case 0:
            path.write_bytes(store.pristine[other])
            return f"has the content of {other.name}"
        case 1:
            path.unlink()
            return "missing"
        case 2:
            path.unlink()
            path.symlink_to(store.neighbours / random.choice(["victim", "other", "nothing"]))
            return "a link"
        case 3:
            path.unlink()
            os.mkfifo(path)
            return "a pipe"
        case 4:
            path.unlink()
            path.mkdir()
            return "a folder"
        case 5:
            folder = path.parent
            aside = folder.with_name(folder.name + "-aside")
            if folder == store.folder or aside.exists():
                return "nothing"
            folder.rename(aside)
            folder.symlink_to(random.choice([aside, store.neighbours / "other"]))
            return "its folder is a link"
        case _:
            name = random.choice(
                [b"\xff\xfe", b"9" * 40 + b".json", b"0000001.json", b"000007.json", b"\x1b[2J", b"..."]
            )
            with open(os.fsencode(path.parent) + b"/" + name, "wb") as file:
                file.write(damaged(path.read_bytes(), random))
            return f"beside it {name!r}"
