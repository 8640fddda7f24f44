"""``python -m codegen [--jar PATH]``: write ``src/quorate/protocol/messages`` anew."""

import argparse
import sys
from pathlib import Path

from codegen.definitions import select_apis
from codegen.jar import KAFKA_VERSION, JarUnavailableError, fetch_jar, read_definitions
from codegen.render import HEADER, render_module, render_table

OUTPUT = Path(__file__).parent.parent / "src/quorate/protocol/messages"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m codegen", description=__doc__)
    parser.add_argument("--jar", type=Path, help="a kafka-clients jar; without it, Maven fetches one")
    arguments = parser.parse_args()
    try:
        files = generate(arguments.jar or fetch_jar())
    except JarUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    write(files, OUTPUT)
    print(f"{OUTPUT}: {len(files)} modules, {sum(map(len, files.values()))} characters")
    return 0


def generate(jar: Path) -> dict[str, str]:
    """File name to content, for every file in the folder of messages."""
    apis = select_apis(read_definitions(jar))
    files = {
        "__init__.py": HEADER.format(title="One module for each API", version=KAFKA_VERSION) + "\n",
        "api_table.py": render_table(apis, KAFKA_VERSION),
    }
    return files | {f"{api.module}.py": render_module(api, KAFKA_VERSION) for api in apis}


def write(files: dict[str, str], folder: Path) -> None:
    """Make the folder hold exactly these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.py"):
        if stale.name not in files:
            stale.unlink()
    for name, content in files.items():
        (folder / name).write_text(content)


if __name__ == "__main__":
    sys.exit(main())
