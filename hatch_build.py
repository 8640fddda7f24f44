"""Compiles ``native/*.c`` into the module ``quorate._native`` when the package is built, where there is a C compiler.

Without one the build goes on: the package then does the same in Python. ``QUORATE_NATIVE=0`` does without, and
``QUORATE_NATIVE=1`` fails where it cannot be done. The module uses the stable ABI only, so one serves all versions of
Python from 3.11 on.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "QUORATE_NATIVE"
MODULE = "_native.abi3.so"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
_COMPILERS = ("cc", "gcc", "clang")
_LINKING = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
_TIMEOUT_S = 300


class CannotCompile(Exception):
    """Why there is no module."""


class NativeModule(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Into the source tree for an editable installation, else into the wheel alone."""
        root = Path(self.root)
        if version == "editable":
            folder = root / "src" / "quorate"
        else:
            self._draft = tempfile.TemporaryDirectory(prefix="quorate-native-")
            folder = Path(self._draft.name)
        try:
            compile_module(root / "native", folder / MODULE, self.metadata.version, os.environ)
        except CannotCompile as reason:
            (folder / MODULE).unlink(missing_ok=True)
            if os.environ.get(SWITCH) == "1":
                raise
            self.app.display_warning(f"Built without the native module, so Quorate is slower: {reason}")
            return
        if version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{_platform()}"
            build_data["force_include"][str(folder / MODULE)] = f"quorate/{MODULE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version != "editable":
            self._draft.cleanup()


def compile_module(sources: Path, target: Path, version: str, environment: Mapping[str, str]) -> None:
    """Written beside and renamed: a process that runs keeps the one that it has loaded."""
    if environment.get(SWITCH) == "0":
        raise CannotCompile(f"{SWITCH}=0")
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or sys.platform == "win32":
        raise CannotCompile("only CPython with its lock (GIL), not on Windows, has the ABI that it needs")
    draft = target.with_suffix(f".{os.getpid()}.draft")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        raise CannotCompile(f"there is no {include}/Python.h")
    command = [
        *find_compiler(environment),
        *FLAGS,
        f'-DQUORATE_VERSION="{version}"',
        f"-I{include}",
        *shlex.split(environment.get("CFLAGS", "")),
        *_LINKING,
        "-o",
        str(draft),
        *map(str, sorted(sources.glob("*.c"))),
    ]
    try:
        subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, timeout=_TIMEOUT_S)
        draft.replace(target)
    except subprocess.CalledProcessError as error:
        raise CannotCompile(f"{shlex.join(command[:1])} failed: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompile(str(error)) from None
    finally:
        draft.unlink(missing_ok=True)


def find_compiler(environment: Mapping[str, str]) -> list[str]:
    """Its words: ``$CC`` may have options."""
    wanted = shlex.split(environment.get("CC", ""))
    for words in [wanted] if wanted else [[name] for name in _COMPILERS]:
        found = shutil.which(words[0], path=environment.get("PATH"))
        if found:
            return [found, *words[1:]]
    raise CannotCompile(f"there is no C compiler ({' '.join(wanted) or ', '.join(_COMPILERS)})")


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
