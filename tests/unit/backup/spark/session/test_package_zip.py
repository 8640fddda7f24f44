import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from quorate.backup.spark.session.spark_session import write_package_zip
from quorate.kernel import native


def test_worker_can_import_tasks_from_the_zip_alone(tmp_path: Path) -> None:
    package = write_package_zip(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import quorate.backup.spark.copy.copy_task, quorate.backup.spark.upkeep.verification as module;"
        "print(module.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(package)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(package))


def test_worker_loads_the_native_module_of_the_driver_from_the_zip(tmp_path: Path) -> None:
    package = write_package_zip(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import quorate.backup.spark.data_source.row_reader as module;"
        "from quorate.kernel import native;"
        "print(module.__file__, module.fastest_scan().__class__.__name__, native.choice, sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(package)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    place, scan, choice = done.stdout.strip().split("|")
    assert place.startswith(str(package))
    assert choice.startswith("Python" if native.native is None else "native")
    assert scan == ("function" if native.native is None else "NativeScan")


def test_worker_does_without_the_module_where_the_driver_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "native", None)
    with zipfile.ZipFile(write_package_zip(tmp_path)) as archive:
        assert f"quorate/{native.FILE}" not in archive.namelist()
