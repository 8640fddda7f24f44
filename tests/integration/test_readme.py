"""The first thing that a reader of the README copies works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_first_example_of_the_readme_passes(tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "test_example.py").write_text(example[1])

    command = [sys.executable, "-m", "pytest", "-q", "-p", "quorate.testing.pytest_plugin", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout
