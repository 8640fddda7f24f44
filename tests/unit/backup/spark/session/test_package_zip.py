import subprocess
import sys
from pathlib import Path

from quorate.backup.spark.session.spark_session import write_package_zip


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


def test_worker_finds_the_source_of_the_compiled_scan_in_the_zip(tmp_path: Path) -> None:
    package = write_package_zip(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from importlib.resources import files; import quorate.backup.spark.data_source.row_reader as module;"
        "print(module.__file__, len(files('quorate.records').joinpath('columnar_scan.c').read_bytes()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(package)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    place, size = done.stdout.split()
    assert place.startswith(str(package))
    assert int(size) > 1000
