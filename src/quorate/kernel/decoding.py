"""Bytes and trees into structs, from any thread.

msgspec looks at a struct's fields when it is first to decode one, and other threads see what it has looked at so far:
where two of them meet there, the process ends by a segmentation fault. So what decodes a kind is made once, by one
thread at a time. Decoders that modules make when they are imported need none of this.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_making: Final = Lock()
_made: Final[dict[tuple[Callable[..., Any], Any], Any]] = {}


def decode_json(data: bytes | memoryview, kind: type[T]) -> T:
    decoded: T = _decoder(msgspec.json.Decoder, kind).decode(data)
    return decoded


def decode_msgpack(data: bytes | memoryview, kind: type[T]) -> T:
    decoded: T = _decoder(msgspec.msgpack.Decoder, kind).decode(data)
    return decoded


def convert(tree: Any, kind: type[T], *, strict: bool = True) -> T:
    """What a file of settings holds, as a struct."""
    with _making:
        return msgspec.convert(tree, kind, strict=strict)


def _decoder(make: Callable[..., Any], kind: Any) -> Any:
    decoder = _made.get((make, kind))
    if decoder is None:
        with _making:
            decoder = _made[make, kind] = make(kind)
    return decoder
