"""How the JVM of a session is started: by Spark's own scripts, or without them where their outcome is known. Does I/O.

The scripts run a shell, a Python and a JVM of their own only to find out the command line of the one that is wanted.
Where nothing but our own settings has a say in it, it is asked for once and remembered, by all that it depends on.
"""

import hashlib
import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER: Final = "org.apache.spark.launcher.Main"
_DEFAULT_ARGUMENTS: Final = "pyspark-shell"
_ASKING_TIMEOUT_S: Final = 60
# What a shell script of Spark's, or its launcher, would look at. One that is set may say anything.
_HAVE_A_SAY: Final = ("SPARK_", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "CLASSPATH")
_SAY_NOTHING: Final = ("SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS", "SPARK_BUFFER_SIZE", "SPARK_AUTH_SOCKET_TIMEOUT")
_OWN_OF_THE_DRIVER: Final = ("spark.driver.extraJavaOptions", "spark.driver.host", "spark.driver.bindAddress")
_FOR_THE_LAUNCHER: Final = ("spark.driver.", "spark.jars", "spark.submit.", "spark.files", "spark.archives")


class Launch(NamedTuple):
    command: list[str]
    environment: dict[str, str]
    is_remembered: bool  # Should it fail, the scripts may know better.


def scripts(home: Path, conf: Mapping[str, str], environment: Mapping[str, str]) -> Launch:
    submit = [str(home / "bin" / "spark-submit"), *_arguments(conf)]
    given = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", _DEFAULT_ARGUMENTS))
    return Launch([*submit, *given], dict(environment), is_remembered=False)


def launch(home: Path, java: Path, conf: Mapping[str, str], environment: Mapping[str, str], cache: Path) -> Launch:
    """The quickest that is right."""
    if not _is_plain(home, conf, environment):
        return scripts(home, conf, environment)
    options = shlex.split(conf.get("spark.driver.extraJavaOptions", ""))
    memory = _Memory(cache, home, java)
    beginning = memory.recall() or memory.learn(_ask(home, java, environment))
    if beginning is None:
        return scripts(home, conf, environment)
    command = [*beginning, *options, _SUBMIT, *_arguments(conf), _DEFAULT_ARGUMENTS]
    return Launch(command, _script_environment(home, environment), is_remembered=True)


def forget(home: Path, java: Path, cache: Path) -> None:
    _Memory(cache, home, java).forget()


def _is_plain(home: Path, conf: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether no file, variable or setting of the user's has a say."""
    if (home / "conf").exists() or (home / "RELEASE").exists():
        return False
    if any(name.startswith(_HAVE_A_SAY) and name not in _SAY_NOTHING for name in environment):
        return False
    if not conf.get("spark.master", "").startswith("local["):
        return False
    return not any(name.startswith(_FOR_THE_LAUNCHER) and name not in _OWN_OF_THE_DRIVER for name in conf)


def _arguments(conf: Mapping[str, str]) -> list[str]:
    return [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]


def _script_environment(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """As the scripts leave it for the JVM."""
    return dict(environment) | {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONHASHSEED": "0",
    }


def _ask(home: Path, java: Path, environment: Mapping[str, str]) -> list[str] | None:
    """What Spark's launcher would put before the name of the class, for settings that say nothing of the JVM."""
    command = [str(java), "-Xmx128m", "-cp", f"{home / 'jars'}/*", _LAUNCHER, _SUBMIT, _DEFAULT_ARGUMENTS]
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            command,
            capture_output=True,
            env=_script_environment(home, environment),
            timeout=_ASKING_TIMEOUT_S,
            check=True,
            start_new_session=True,
        )
        _, _, answer = asked.stdout.decode().partition("\0\n")
        words = answer.split("\0")
        if _SUBMIT in words:
            return words[: words.index(_SUBMIT)]
    return None


class _Memory:
    def __init__(self, cache: Path, home: Path, java: Path) -> None:
        ingredients = [str(java.resolve()), str(home)]
        for path in (java.resolve().parent.parent / "release", home / "version.py"):
            with suppress(OSError):
                ingredients.append(path.read_text())
        digest = hashlib.sha256("\n".join(ingredients).encode()).hexdigest()[:16]
        self._path = cache / f"spark-launch-{digest}.json"

    def recall(self) -> list[str] | None:
        with suppress(OSError, ValueError):
            words = json.loads(self._path.read_text())
            if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
                return words
        return None

    def learn(self, words: list[str] | None) -> list[str] | None:
        with suppress(OSError):
            if words is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                draft = self._path.with_suffix(f".{os.getpid()}")
                draft.write_text(json.dumps(words))
                draft.replace(self._path)
        return words

    def forget(self) -> None:
        with suppress(OSError):
            self._path.unlink()


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "quorate"
