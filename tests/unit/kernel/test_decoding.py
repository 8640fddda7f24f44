"""Structs are decoded by many threads at once from the first time on."""

import subprocess
import sys

import msgspec
import pytest

from quorate.kernel.decoding import convert, decode_json, decode_msgpack

#: In a process of its own, because a fault ends it. A struct is laid out only once: so a hundred of them, with others
#: in them, for which Python code runs while the outer one is half made.
_MEETING = """
import sys, threading
import msgspec
from quorate.kernel.decoding import {name} as decode

def new_kind(number):
    inner = [msgspec.defstruct(f"Inner{{number}}", [("value", int)]) for number in range(5)]
    return msgspec.defstruct(
        f"Kind{{number}}", [*((f"inner{{n}}", kind | None, None) for n, kind in enumerate(inner)), ("last", int, 0)]
    )


kinds = [new_kind(number) for number in range(100)]
tree = {{"last": 1}}
data = {data}
together = threading.Barrier(8)
decoded = []


def run():
    for kind in kinds:
        together.wait()
        decoded.append(decode(data, kind).last)


sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=run) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert decoded == [1] * 800
"""


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("decode_json", "msgspec.json.encode(tree)"),
        ("decode_msgpack", "msgspec.msgpack.encode(tree)"),
        ("convert", "tree"),
    ],
)
def test_threads_that_decode_a_struct_for_the_first_time_do_not_end_the_process(name: str, data: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEETING.format(name=name, data=data)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


class _Named(msgspec.Struct):
    name: str


def test_what_is_not_of_the_kind_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="str"):
        decode_json(b'{"name":1}', _Named)
    with pytest.raises(msgspec.ValidationError, match="str"):
        decode_msgpack(msgspec.msgpack.encode({"name": 1}), _Named)
    with pytest.raises(msgspec.ValidationError, match="str"):
        convert({"name": 1}, _Named)
    assert convert({"name": "a"}, _Named) == decode_json(b'{"name":"a"}', _Named)
