"""The package as it is published: sdist, wheel and what an installed one does. ``make wheel`` tries every Python."""

import importlib.machinery
import os
import re
import subprocess
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from quorate.kernel import native
from tests.wheel import smoke
from tests.wheel.build import ROOT, build_sdist, build_wheel
from tests.wheel.linked import linked_environment

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUORATE"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def sdist(folder: Path) -> Path:
    return build_sdist(folder)


@pytest.fixture(scope="module")
def wheel(sdist: Path, folder: Path) -> Path:
    """With the native module, where this machine can build one."""
    return build_wheel(sdist, folder, CLEAN)


@pytest.fixture(scope="module")
def pure_wheel(sdist: Path, folder: Path) -> Path:
    return build_wheel(sdist, folder, CLEAN | {"PATH": str(folder / "nowhere"), "CC": ""})


@pytest.fixture(scope="module")
def programs(wheel: Path, folder: Path) -> Path:
    return linked_environment(wheel, folder / "venv", extra="backup", others=("confluent-kafka",))


def try_it(programs: Path, kernel: str, *options: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [str(programs / "python"), smoke.__file__, kernel, *options],
        cwd=programs,
        env=CLEAN | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok: quorate ")


@pytest.mark.timeout(900)
def test_installed_wheel_serves_a_cluster_and_brings_records_back(programs: Path) -> None:
    if native.choice.is_surprising or (native.native is None and native.SWITCH not in os.environ):
        pytest.skip(f"no native module: {native.choice}")
    try_it(programs, "native", "--backup")


def test_installed_wheel_does_without_its_native_module(programs: Path) -> None:
    try_it(programs, "Python", environment={native.SWITCH: "0"})


def test_wheel_without_a_compiler_is_pure_and_works(pure_wheel: Path, folder: Path) -> None:
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    pure = linked_environment(pure_wheel, folder / "pure", others=("confluent-kafka",))
    try_it(pure, "Python")


def test_wheel_with_the_module_is_for_every_python_of_one_system(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if f"quorate/{native.FILE}" not in names:
        pytest.skip("no compiler here")
    assert re.fullmatch(r"quorate-[0-9.]+-cp311-abi3-[a-z]+\w+\.whl", wheel.name)
    assert native.FILE.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    assert not [name for name in names if name.startswith("native/") or name.endswith((".c", ".h"))]


def test_build_that_must_have_the_module_fails_without_a_compiler(sdist: Path, tmp_path: Path) -> None:
    environment = CLEAN | {"PATH": str(tmp_path), "CC": "", native.SWITCH: "1"}
    with pytest.raises(subprocess.CalledProcessError):
        build_wheel(sdist, tmp_path, environment)
    assert list(tmp_path.glob("*.whl")) == []


def test_sdist_has_what_the_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    sources = {f"native/{path.name}" for path in (ROOT / "native").iterdir()}
    assert sources | {"hatch_build.py", "hatch_metadata.py", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_links_of_the_long_description_are_absolute(wheel: Path) -> None:
    metadata = _metadata(wheel)
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {url.split(",")[0] for url in metadata.get_all("Project-URL", [])} >= {"Source", "Changelog", "Issues"}


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())
