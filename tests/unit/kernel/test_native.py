"""The choice between the compiled module and Python, and what is said of it."""

import inspect
import os
import random
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import quorate
from hatch_build import CannotCompile, find_compiler
from quorate.kernel import native
from quorate.kernel.native import INTERFACE, SWITCH, Choice, NativeModule, choose

ROOT = Path(__file__).parents[3]
#: What ``quorate.kernel.native`` itself needs.
SOURCES = ("__init__.py", "kernel/__init__.py", "kernel/native.py", "kernel/ports.py")
PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
from quorate.kernel import native
print(native.__file__.startswith(sys.argv[1]), native.choice, "!" if native.choice.is_surprising else "")
"""

Pack = Callable[[dict[str, bytes]], Path]


def as_folder(files: dict[str, bytes], place: Path) -> Path:
    for name, content in files.items():
        path = place / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place / "folder"


def as_zip(files: dict[str, bytes], place: Path) -> Path:
    with zipfile.ZipFile(place / "quorate.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return place / "quorate.zip"


@pytest.fixture(params=[as_folder, as_zip])
def pack(request: pytest.FixtureRequest, tmp_path: Path) -> Pack:
    return lambda files: request.param(files, tmp_path)


@pytest.fixture
def module() -> bytes:
    """The one of this installation."""
    path = Path(quorate.__file__).parent / native.FILE
    if not path.is_file():
        pytest.skip(f"no native module: {choose({})}")
    return path.read_bytes()


def package(**changed: bytes) -> dict[str, bytes]:
    sources = {f"quorate/{name}": (ROOT / "src/quorate" / name).read_bytes() for name in SOURCES}
    return sources | {f"quorate/{name}": content for name, content in changed.items()}


def said(path: Path, environment: dict[str, str] | None = None) -> str:
    """In a process of its own, by a package at that place."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUORATE"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        capture_output=True,
        text=True,
        env=clean | (environment or {}),
        cwd=path.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    is_of_that_place, _, line = done.stdout.strip().partition(" ")
    assert is_of_that_place == "True"
    return line


def test_module_is_used_from_a_folder_and_from_a_zip(pack: Pack, module: bytes) -> None:
    place = pack(package(**{native.FILE: module}))
    assert said(place) == "native"
    assert said(place, {SWITCH: "0"}) == "Python, because QUORATE_NATIVE=0"


def test_without_a_module_python_does_the_work(pack: Pack) -> None:
    assert said(pack(package())) == "Python, because this installation was built without the native module"


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF" + bytes(1000)], ids=["empty", "text", "zeros"])
def test_module_that_cannot_be_loaded_is_told_in_one_line(pack: Pack, content: bytes) -> None:
    line = said(pack(package(**{native.FILE: content})))
    assert re.fullmatch(r"Python, because the native module cannot be loaded: .+ !", line)


def test_module_of_another_version_is_not_used(pack: Pack, module: bytes) -> None:
    other = {"__init__.py": b'__version__ = "9.9.9"\n', native.FILE: module}
    versions = f"{quorate.__version__} ({INTERFACE}), not 9.9.9 ({INTERFACE})"
    assert said(pack(package(**other))) == f"Python, because the native module is of version {versions} !"


def test_module_with_another_interface_is_not_used(pack: Pack, module: bytes) -> None:
    source = (ROOT / "src/quorate/kernel/native.py").read_bytes()
    newer = source.replace(b"INTERFACE: Final = %d" % INTERFACE, b"INTERFACE: Final = %d" % (INTERFACE + 1))
    assert newer != source
    place = pack(package(**{"kernel/native.py": newer, native.FILE: module}))
    assert f"({INTERFACE}), not {quorate.__version__} ({INTERFACE + 1}) !" in said(place)


def test_module_is_here_where_it_can_be_built() -> None:
    """Else all that compares it with its twins would be skipped, and nobody would know."""
    try:
        find_compiler(os.environ)
    except CannotCompile as reason:
        pytest.skip(str(reason))
    if not Path(sysconfig.get_path("include"), "Python.h").is_file() or os.environ.get(SWITCH) == "0":
        pytest.skip("no headers, or not wanted")
    assert str(native.choice) == "native"


def test_the_headers_number_is_the_packages() -> None:
    assert re.findall(r"#define QUORATE_INTERFACE (\d+)", (ROOT / "native/native.h").read_text()) == [str(INTERFACE)]


def test_every_function_of_the_module_is_known_here() -> None:
    if native.native is None:
        pytest.skip(f"no native module: {native.choice}")
    declared = {name for name, _ in inspect.getmembers(NativeModule, inspect.isfunction) if not name.startswith("_")}
    assert {
        name for name in dir(native.native) if callable(getattr(native.native, name)) and name[0] != "_"
    } == declared


def test_choice_is_told_in_a_few_words() -> None:
    assert str(Choice(None, "of that")) == "Python, because of that"
    assert str(choose({SWITCH: "0"})) == "Python, because QUORATE_NATIVE=0"


def test_checksum_is_the_twins() -> None:
    from crc32c import crc32c as twin

    if native.native is None:
        pytest.skip(f"no native module: {native.choice}")
    source = random.Random(1)
    for size in [*range(1100), 4096, 12_287, 12_288, 12_289, 65_535, 98_304, 98_305, 200_001, 300_000]:
        data, before = source.randbytes(size), source.getrandbits(32)
        assert native.native.crc32c(data) == twin(data)
        assert native.native.crc32c(memoryview(bytearray(data)), before) == twin(data, before)


@pytest.mark.parametrize(
    "arguments",
    [(), (b"", 1, 2), ("text",), (b"", -1), (b"", 2**32), (b"", 2**70), (b"", "1"), (memoryview(b"abcd")[::2],)],
)
def test_checksum_refuses_what_is_no_bytes_and_no_checksum(arguments: tuple[object, ...]) -> None:
    if native.native is None:
        pytest.skip(f"no native module: {native.choice}")
    with pytest.raises((TypeError, OverflowError, BufferError)):
        native.native.crc32c(*arguments)  # type: ignore[arg-type]
