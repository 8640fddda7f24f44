"""Makes a Delta or an Iceberg table of a folder of Parquet files, by writing its metadata. Does I/O.

Both formats are metadata over Parquet files, and packages of their own write it: they are asked for only where such a
table is wanted.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from quorate.kernel.errors import QuorateError

_PACKAGES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}
_ICEBERG_TABLE: Final = "export.records"


def check_packages(table_format: str) -> None:
    package = _PACKAGES[table_format]
    if find_spec(package) is None:
        raise QuorateError(
            f"export to {table_format} needs the package {package}: pip install 'quorate[{table_format}]'"
        )


def add_table_metadata(table_format: str, folder: Path, *, is_partitioned: bool) -> None:
    """The last step: until it is done, a reader of the table sees none. Parquet alone needs no more."""
    if table_format in _PACKAGES and next(folder.rglob("*.parquet"), None) is None:
        raise QuorateError(f"there is no record to export, and a {table_format} table needs one")
    match table_format:
        case "delta":
            _make_delta_table(folder, is_partitioned=is_partitioned)
        case "iceberg":
            _make_iceberg_table(folder)


def _make_delta_table(folder: Path, *, is_partitioned: bool) -> None:
    from deltalake import Field, Schema, convert_to_deltalake  # type: ignore[import-not-found, unused-ignore]

    if is_partitioned:
        topics = Schema([Field("topic", "string", nullable=True)])
        convert_to_deltalake(str(folder), partition_by=topics, partition_strategy="hive")
    else:
        convert_to_deltalake(str(folder))


def _make_iceberg_table(folder: Path) -> None:
    """A catalog of its own beside the data, in one SQLite file."""
    import pyarrow.parquet
    from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore]

    files = sorted(str(path) for path in folder.rglob("*.parquet"))
    catalog = SqlCatalog("export", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("export")
    schema = pyarrow.parquet.read_schema(files[0]).remove_metadata()
    table = catalog.create_table(_ICEBERG_TABLE, schema=schema, location=folder.as_uri())
    table.add_files([Path(file).as_uri() for file in files])
