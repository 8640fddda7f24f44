"""Tidiness that no linter knows: module docstrings, file sizes, unfinished work left in the code."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "src/quorate/protocol/messages"
MAX_LINES = 500
MAX_FUNCTION_LINES = 60
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b|NotImplementedError")
TASKS = "src/quorate/kernel/tasks.py"
DECODING = "src/quorate/kernel/decoding.py"
SLEEPLESS = ("tests/unit", "tests/simulation")
BANNED_NAMES = {"utils", "helpers", "manager", "common", "misc"}


def main() -> int:
    complaints = sorted(complaint for path in sources() for complaint in check(path))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def sources() -> Iterator[Path]:
    for folder in ("src", "tests", "codegen", "benchmarks", "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            if not path.is_relative_to(GENERATED):
                yield path


def check(path: Path) -> Iterator[str]:
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    lines = text.splitlines()
    tree = ast.parse(text)
    if lines and not name.startswith("tests/") and not ast.get_docstring(tree):
        yield f"{name}: the module does not say what it owns"
    if len(lines) > MAX_LINES:
        yield f"{name}: {len(lines)} lines; look for the second idea inside"
    if path.stem in BANNED_NAMES:
        yield f"{name}: a module is named for the idea it owns"
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line) and path != Path(__file__).resolve():
            yield f"{name}:{number}: unfinished work"
        if name.startswith(SLEEPLESS) and re.search(r"\btime\.sleep\(|asyncio\.sleep\((?!0\))", line):
            yield f"{name}:{number}: a sleep in a test that owns its time"
    if name.startswith("src/") and name != TASKS:
        yield from (f"{name}:{line}: a task that can fail unseen; {TASKS} starts them" for line in bare_tasks(tree))
    if name.startswith("src/") and name != DECODING:
        yield from (f"{name}:{line}: two threads may meet there; {DECODING} decodes" for line in late_decoding(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines; split it"


def bare_tasks(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(attr="create_task" | "ensure_future", lineno=line)
                | ast.Name(id="create_task" | "ensure_future", lineno=line)
            ):
                yield line


def late_decoding(tree: ast.Module) -> Iterator[int]:
    """Where msgspec is asked for a struct that it may not have seen before."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="decode"), keywords=[ast.keyword(arg="type"), *_], lineno=line):
                yield line
            case ast.Call(func=ast.Attribute(value=ast.Name(id="msgspec"), attr="convert"), lineno=line):
                yield line


if __name__ == "__main__":
    sys.exit(main())
