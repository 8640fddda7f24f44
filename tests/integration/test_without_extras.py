"""Quorate from its wheel, in an environment that has what a cluster needs and nothing that only an extra brings."""

import os
import subprocess
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from quorate.cli.commands import missing_extra
from tests.backup_commands import Finished
from tests.wheel.build import build_sdist, build_wheel
from tests.wheel.linked import linked_environment

BACKUP_EXTRA = "pip install 'quorate[backup]'"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of a fresh environment."""
    folder = tmp_path_factory.mktemp("wheel")
    return linked_environment(build_wheel(build_sdist(folder), folder), folder / "venv")


def run(programs: Path, *arguments: str, program: str = "quorate") -> Finished:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(programs / program), *arguments], capture_output=True, text=True, check=False, env=environment
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "any.yaml"
    path.write_text("backup_id: nightly\n")
    return str(path)


@pytest.mark.parametrize("program", ["quorate", "kafka-backup"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("backup", "--config", "CONFIG"),
        ("restore", "--config", "CONFIG"),
        ("verify", "--storage", "s3://bucket/path", "--backup-id", "nightly"),
        ("verify", "--storage", "file:///tmp/x", "--backup-id", "nightly", "--deep"),
        ("prune", "--storage", "s3://bucket/path", "--keep-last", "3"),
        ("compact", "--storage", "s3://bucket/path", "--backup-id", "nightly"),
        ("hold", "--storage", "s3://bucket/path", "--backup-id", "nightly"),
        ("list-backups", "--storage", "s3://bucket/path"),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_command_without_its_extra_says_what_to_install(
    programs: Path, config: str, arguments: tuple[str, ...], program: str
) -> None:
    done = run(programs, *(config if each == "CONFIG" else each for each in arguments), program=program)

    assert done.status == 1
    assert BACKUP_EXTRA in done.errors
    assert len(done.errors.strip().splitlines()) == 1
    assert done.errors.startswith(f"{program}: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "--output", "/tmp/x", "--storage", "s3://bucket/path", "--backup-id", "nightly"),
        ("offsets", "show", "--config", "CONFIG"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_other_commands_of_the_extra_say_so_too(programs: Path, config: str, arguments: tuple[str, ...]) -> None:
    done = run(programs, *(config if each == "CONFIG" else each for each in arguments))

    assert done.status == 1
    assert BACKUP_EXTRA in done.errors
    assert len(done.errors.strip().splitlines()) == 1


def test_demo_says_at_once_all_that_it_needs(programs: Path) -> None:
    done = run(programs, "demo")

    assert done.status == 1
    assert done.errors == (
        "quorate: the demo needs Spark and a Kafka client: pip install 'quorate[backup]' confluent-kafka\n"
    )


def test_cluster_needs_no_extra(programs: Path) -> None:
    assert run(programs, "--version").output.startswith("quorate ")
    assert run(programs, "backup", "--help").status == 0
    # It gets as far as the network: everything that the command needs is there.
    refused = run(programs, "topics", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2")
    assert "127.0.0.1:1" in refused.errors
    assert "Traceback" not in refused.errors


def test_every_module_of_an_extra_is_known() -> None:
    """What an extra requires in ``pyproject.toml`` is what the sentence is made from."""
    modules: dict[str, set[str]] = {}
    for module, owners in packages_distributions().items():
        for owner in owners:
            modules.setdefault(owner.lower().replace("_", "-"), set()).add(module)
    for text in distribution("quorate").requires or ():
        requirement = Requirement(text)
        extra = next((each for each in ("backup", "connect", "delta", "iceberg") if f'"{each}"' in text), None)
        if extra is None or requirement.name == "quorate":
            continue
        for module in modules.get(requirement.name.lower().replace("_", "-"), ()):
            if not module.startswith("_"):
                sentence = missing_extra(ModuleNotFoundError(name=module))
                assert sentence is not None, f"{module} of {text}"
                assert f"quorate[{extra}]" in sentence
