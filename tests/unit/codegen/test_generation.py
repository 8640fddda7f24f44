"""The committed messages are what the generator makes, and the generator reads definitions as Kafka means them."""

from pathlib import Path
from typing import Any

import pytest

from codegen.__main__ import OUTPUT, generate, write
from codegen.definitions import Api, VersionRange, parse_message, snake_case
from codegen.jar import JarUnavailableError, fetch_jar
from codegen.render import render_module


def test_committed_messages_equal_a_fresh_generation() -> None:
    try:
        jar = fetch_jar()
    except JarUnavailableError as error:
        pytest.skip(str(error))

    fresh = generate(jar)

    assert {path.name for path in OUTPUT.glob("*.py")} == fresh.keys()
    for name, content in fresh.items():
        assert (OUTPUT / name).read_text() == content, f"{name} differs: run make codegen"


def test_writing_removes_what_is_no_longer_generated(tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("")

    write({"here.py": "x = 1\n"}, tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["here.py"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("3", VersionRange(3, 3)),
        ("3-5", VersionRange(3, 5)),
        ("3+", VersionRange(3, 0x7FFF)),
        ("0", VersionRange(0, 0)),
    ],
)
def test_version_ranges(text: str, expected: VersionRange | None) -> None:
    assert VersionRange.parse(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TimeoutMs", "timeout_ms"),
        ("timeoutMs", "timeout_ms"),
        ("IsrNodes", "isr_nodes"),
        ("LastKnownElr", "last_known_elr"),
    ],
)
def test_field_names(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def _generated(*fields: dict[str, Any], valid: str = "1-5", flexible: str = "3+") -> str:
    raw = {
        "type": "data",
        "name": "Sample",
        "validVersions": valid,
        "flexibleVersions": flexible,
        "fields": list(fields),
    }
    module = render_module(Api("Sample", (parse_message(raw, "Sample"),)), "0.0.0")
    return module.partition("    FLEXIBLE_FROM")[2].partition("\n")[2].strip()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"name": "A", "type": "int32", "versions": "0+"}, "a: Int32 = 0"),
        ({"name": "A", "type": "int64", "versions": "0+", "default": "-1"}, "a: Int64 = -1"),
        ({"name": "A", "type": "int32", "versions": "0+", "default": "0x7fffffff"}, "a: Int32 = 2147483647"),
        ({"name": "A", "type": "bool", "versions": "0+", "default": "true"}, "a: Bool = True"),
        ({"name": "A", "type": "int8", "versions": "2-4"}, "a: Annotated[Int8, Versions(2, 4)] = 0"),
        (
            {"name": "A", "type": "int8", "versions": "2+", "ignorable": True},
            "a: Annotated[Int8, Versions(2), IGNORABLE] = 0",
        ),
        ({"name": "A", "type": "uuid", "versions": "0+"}, "a: Uuid = NO_UUID"),
        ({"name": "A", "type": "string", "versions": "0+", "nullableVersions": "0+"}, 'a: String | None = ""'),
        (
            {"name": "A", "type": "string", "versions": "0+", "nullableVersions": "2+", "default": "null"},
            "a: Annotated[String | None, Nullable(2)] = None",
        ),
        ({"name": "A", "type": "[]string", "versions": "0+"}, "a: Sequence[String] = ()"),
        ({"name": "A", "type": "records", "versions": "0+", "nullableVersions": "0+"}, "a: Records | None = None"),
        (
            {"name": "A", "type": "int32", "versions": "3+", "taggedVersions": "3+", "tag": 2},
            "a: Annotated[Int32, Versions(3), Tagged(2)] = 0",
        ),
        ({"name": "A", "type": "int32", "versions": "0"}, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_field_becomes(field: dict[str, Any], expected: str) -> None:
    assert _generated(field) == expected


def test_nested_struct_stands_before_what_holds_it() -> None:
    nested = {"name": "B", "type": "int32", "versions": "0+"}
    raw = {
        "type": "data",
        "name": "Sample",
        "validVersions": "0",
        "flexibleVersions": "none",
        "fields": [{"name": "Items", "type": "[]Item", "versions": "0+", "fields": [nested]}],
    }

    module = render_module(Api("Sample", (parse_message(raw, "Sample"),)), "0.0.0")

    assert module.index("class Item(Message") < module.index("class Sample(VersionedMessage")
    assert "items: Sequence[Item] = ()" in module
    assert "FLEXIBLE_FROM: ClassVar[int] = NEVER_FLEXIBLE" in module


def test_struct_name_of_both_directions_is_told_apart() -> None:
    item = {"name": "Items", "type": "[]Item", "versions": "0+", "fields": []}
    messages = tuple(
        parse_message(
            {
                "type": kind,
                "apiKey": 1,
                "name": f"Sample{kind.title()}",
                "validVersions": "0",
                "flexibleVersions": "0+",
                "fields": [item],
            },
            "Sample",
        )
        for kind in ("request", "response")
    )

    module = render_module(Api("Sample", messages), "0.0.0")

    assert "items: Sequence[RequestItem] = ()" in module
    assert "items: Sequence[ResponseItem] = ()" in module
