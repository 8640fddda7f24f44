"""The build of the native module: with every compiler that is here, and what is said where it cannot be built."""

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from hatch_build import MODULE, SWITCH, CannotCompile, compile_module, find_compiler
from quorate.kernel import native

SOURCES = Path(__file__).parents[2] / "native"
COMPILERS = [name for name in ("gcc", "clang", "aarch64-linux-gnu-gcc") if shutil.which(name)]
PATH = {"PATH": os.environ["PATH"]}

needs_headers = pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").is_file(), reason="this Python came without its headers"
)


@needs_headers
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimized", ["-O0", "-O3"])
def test_module_is_compiled_without_a_warning(compiler: str, optimized: str, tmp_path: Path) -> None:
    environment = {**PATH, "CC": compiler, "CFLAGS": f"-Werror {optimized}"}
    compile_module(SOURCES, tmp_path / MODULE, "1.2.3", environment)
    assert [path.name for path in tmp_path.iterdir()] == [MODULE]


def test_name_of_the_module_is_what_the_package_looks_for() -> None:
    assert MODULE == native.FILE
    assert SWITCH == native.SWITCH


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": "/nowhere"}, r"there is no C compiler \(cc, gcc, clang\)"),
        ({**PATH, "CC": "no-such-compiler -m64"}, r"there is no C compiler \(no-such-compiler -m64\)"),
        ({**PATH, "CC": "false"}, r"false failed"),
        ({**PATH, "CC": "/proc/version"}, r"there is no C compiler"),
        ({**PATH, SWITCH: "0"}, "QUORATE_NATIVE=0"),
        ({**PATH, "CFLAGS": "-include no-such-header.h"}, r"failed: .*no-such-header\.h"),
    ],
)
@needs_headers
@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
def test_reason_is_told_and_nothing_is_left(environment: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match=re.compile(reason, re.DOTALL)):
        compile_module(SOURCES, tmp_path / MODULE, "1.2.3", environment)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [(sys.implementation, "name", "pypy"), (sys, "platform", "win32")],
    ids=["PyPy", "Windows"],
)
def test_systems_without_the_abi_are_told(
    where: object, name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, value)
    with pytest.raises(CannotCompile, match="only CPython"):
        compile_module(SOURCES, tmp_path / MODULE, "1.2.3", PATH)


def test_python_without_its_lock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: 1)
    with pytest.raises(CannotCompile, match="GIL"):
        compile_module(SOURCES, tmp_path / MODULE, "1.2.3", PATH)


def test_python_without_headers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(CannotCompile, match=r"there is no .*/Python\.h"):
        compile_module(SOURCES, tmp_path / MODULE, "1.2.3", PATH)


@needs_headers
@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
def test_failed_build_leaves_the_module_that_is_there(tmp_path: Path) -> None:
    (tmp_path / MODULE).write_text("in use")
    with pytest.raises(CannotCompile):
        compile_module(SOURCES, tmp_path / MODULE, "1.2.3", {**PATH, "CC": "false"})
    assert (tmp_path / MODULE).read_text() == "in use"


@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
def test_words_behind_the_compiler_are_its_options() -> None:
    assert find_compiler({**PATH, "CC": f"{COMPILERS[0]} -g"}) == [shutil.which(COMPILERS[0]), "-g"]
