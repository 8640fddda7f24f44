"""The map of the house, ``make map``: its rooms, the doors between them, the figures of the whole, and its walks.

A walk is a block of docs/architecture.md that names every function on somebody's way through the code: a line for each
hop. The fewer files it leads through, the easier it is to follow.
"""

import ast
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
SRC = _ROOT / "src"
ARCHITECTURE = _ROOT / "docs" / "architecture.md"
PACKAGE = "quorate"
GENERATED = f"{PACKAGE}.protocol.messages."
_LONGEST_DOORS = 15
_WALK = re.compile(r"^```walk (?P<name>[\w-]+)\n(?P<hops>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    line_count: int
    code_line_count: int
    imports: frozenset[str]
    """Modules of the package that it names anywhere, for type checking and in functions too."""
    class_names: tuple[str, ...]
    function_lengths: tuple[int, ...]
    is_package: bool

    @property
    def room(self) -> str:
        """Two levels: ``broker/handlers``, ``kernel``."""
        folders = self.name.split(".")[1 : None if self.is_package else -1]
        return "/".join(folders[:2]) or "."


def main() -> None:
    modules = read_modules(SRC)
    _print_rooms(modules)
    _print_doors(modules)
    _print_figures(modules)
    _print_walks(ARCHITECTURE.read_text())


def read_modules(src: Path) -> dict[str, Module]:
    """Everything but the generated messages."""
    paths = {_module_name(path, src): path for path in sorted((src / PACKAGE).rglob("*.py"))}
    return {
        name: _read_module(name, path, set(paths)) for name, path in paths.items() if not name.startswith(GENERATED)
    }


def _module_name(path: Path, src: Path) -> str:
    parts = path.relative_to(src).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read_module(name: str, path: Path, known: set[str]) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Module(
        name=name,
        line_count=len(text.splitlines()),
        code_line_count=_code_line_count(text, tree),
        imports=frozenset(_imports(tree, known)) - {name},
        class_names=tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        function_lengths=tuple((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions),
        is_package=path.name == "__init__.py",
    )


def _code_line_count(text: str, tree: ast.Module) -> int:
    """Without blank lines, comments and docstrings (of fields too)."""
    prose: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if number not in prose and line.strip() and not line.strip().startswith("#"))


def _imports(tree: ast.Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in known else node.module


def _print_rooms(modules: dict[str, Module]) -> None:
    """``single`` are the modules that exactly one other one imports."""
    print(f"{'room':32} {'files':>5} {'lines':>7} {'code':>7} {'single':>7}")
    single = {module.name for module in with_one_importer(modules)}
    rooms = defaultdict(list)
    for module in modules.values():
        rooms[module.room].append(module)
    for room, inside in sorted(rooms.items()):
        lines = sum(module.line_count for module in inside)
        code = sum(module.code_line_count for module in inside)
        alone = sum(module.name in single for module in inside)
        print(f"{room:32} {len(inside):5} {lines:7,} {code:7,} {alone:7}")
    print()


def _print_doors(modules: dict[str, Module]) -> None:
    doors = Counter(
        (module.room, modules[imported].room)
        for module in modules.values()
        for imported in module.imports
        if imported in modules and modules[imported].room != module.room
    )
    print("busiest doors (imports from one room into another)")
    for (outer, inner), count in doors.most_common(_LONGEST_DOORS):
        print(f"  {outer} -> {inner}: {count}")
    print()


def _print_figures(modules: dict[str, Module]) -> None:
    rooms_apart = [module for module in modules.values() if module.line_count > 1 or not module.is_package]
    lengths = [module.line_count for module in rooms_apart if not module.is_package]
    functions = sorted(length for module in modules.values() for length in module.function_lengths)
    cycle = max(import_cycles(modules), key=len, default=())
    repeated = {name: count for name, count in _class_name_counts(modules).items() if count > 1}
    for label, figure in (
        ("modules", len(lengths)),
        ("modules with exactly one importer", len(with_one_importer(modules))),
        ("median length of a module", round(statistics.median(lengths))),
        ("longest module", max(lengths)),
        ("modules under 30 lines", sum(length < 30 for length in lengths)),
        ("length of functions: median, p90, max", _quantiles(functions)),
        ("largest import cycle", len(cycle)),
        ("class names defined more than once", len(repeated)),
    ):
        print(f"{label:40} {figure}")
    print(f"  cycle: {', '.join(sorted(cycle)) or 'none'}")
    print(f"  repeated: {', '.join(f'{name} x{count}' for name, count in sorted(repeated.items())) or 'none'}")


def with_one_importer(modules: dict[str, Module]) -> list[Module]:
    importers = Counter(imported for module in modules.values() for imported in module.imports)
    return [module for module in modules.values() if importers[module.name] == 1 and not module.is_package]


def _print_walks(page: str) -> None:
    walks = list(_WALK.finditer(page))
    if walks:
        print("\nwalks of docs/architecture.md: files, hops")
    for walk in walks:
        modules = [line.split(":")[0] for line in walk["hops"].splitlines() if line]
        print(f"  {walk['name']:38} {len(set(modules)):2}, {len(modules):2}")


def _quantiles(lengths: list[int]) -> str:
    return f"{lengths[len(lengths) // 2]}, {lengths[len(lengths) * 9 // 10]}, {lengths[-1]}"


def _class_name_counts(modules: dict[str, Module]) -> Counter[str]:
    """Of public classes: what begins with an underscore is its module's own affair."""
    return Counter(name for m in modules.values() for name in m.class_names if not name.startswith("_"))


def import_cycles(modules: dict[str, Module]) -> Iterator[tuple[str, ...]]:
    """Strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[tuple[str, ...]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        for imported in sorted(modules[name].imports & modules.keys()):
            if imported not in index:
                yield from visit(imported)
                low[name] = min(low[name], low[imported])
            elif imported in stack:
                low[name] = min(low[name], index[imported])
        if low[name] == index[name]:
            at = stack.index(name)
            component = tuple(stack[at:])
            del stack[at:]
            if len(component) > 1:
                yield component

    for name in modules:
        if name not in index:
            yield from visit(name)


if __name__ == "__main__":
    main()
