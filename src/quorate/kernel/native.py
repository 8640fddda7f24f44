"""The choice between the compiled module, ``quorate._native``, and Python: made once, when this is imported.

Whatever the module does, a twin in Python does too: it is the module's oracle, and does the work where there is none.
Who has a twin looks at ``native`` once, when it is imported or constructed. ``QUORATE_NATIVE=0`` in the environment
forces the twins.

On another machine of a Spark cluster the package is one zip. The system loads no library out of a zip, so there the
module goes through a file in memory. Where it does not fit that machine, the twins do the work.
"""

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast
from zipimport import zipimporter

import quorate
from quorate.kernel.ports import Buffer

SWITCH: Final = "QUORATE_NATIVE"
#: As ``QUORATE_INTERFACE`` in native/native.h: raised with every change of a function.
INTERFACE: Final = 5
NAME: Final = "quorate._native"
FILE: Final = "_native.abi3.so"

Columns = TypeVar("Columns", bound=tuple[object, ...])


class NativeModule(Protocol):
    """What the module offers. Each function says who its twin is."""

    INTERFACE: int
    VERSION: str

    def crc32c(self, data: Buffer, crc: int = 0, /) -> int:
        """The twin is that of the package ``crc32c`` (``kernel.checksum``)."""
        ...

    def scan_records(
        self,
        payloads: Sequence[object],
        bounds: tuple[int, int, int, int],
        allocate: Callable[..., Columns],
        /,
    ) -> Columns | int:
        """What ``allocate`` gave, filled, or the index of a damaged payload. The twin: ``records.columnar``."""
        ...

    def cut_region(
        self, data: Buffer, start_offset: int, end_offset: int, include_batch_across_end: bool, /
    ) -> tuple[int, int, int, int, int, int, int] | None:
        """The twin is ``cut_walked`` (``client.fetch.regions``), which has to be asked where this gives None."""
        ...

    def check_region(self, data: Buffer, /) -> bool:
        """The twin is ``check_batches`` (``client.fetch.batches``), which says what is wrong where this gives False."""
        ...

    def follow(
        self, data: Buffer, position: int, rules: tuple[int, int, int, bool, int, bool], /
    ) -> tuple[int, int, int, int, int, int, int, int, bool]:
        """The twin is ``follow_summaries`` (``backup.segments.stretches``)."""
        ...

    def plain_batches(
        self, data: Buffer, rules: tuple[int, int, int, int, int, int, int], /
    ) -> list[tuple[bytearray, memoryview, int]] | None:
        """The twins are ``restored_batches`` and ``as_produced`` (``backup.restore.batches``), which have to be asked
        where this gives None."""
        ...

    def stamp(
        self, header: bytearray, records: memoryview, producer_id: int, producer_epoch: int, base_sequence: int, /
    ) -> int:
        """The twin is ``patch_producer`` (``records.batch``), which has to be asked where this gives -1."""
        ...

    def read_request(self, frame: Buffer, /) -> tuple[Any, ...] | None:
        """The fields of a Produce or Fetch request; None for the twins, the decoders of ``protocol``."""
        ...

    def read_produced_header(
        self, batch: Buffer, produce_version: int, may_have_holes: bool, /
    ) -> tuple[int, ...] | None:
        """The fields of a sound batch's header; None for the twin, ``records.validation.validate_produced``."""
        ...

    def encode_produced(self, *fields: int | str | bytes) -> bytes | None:
        """A whole answer of the fields in ``protocol.hot_messages``; None for the twin, ``frames.encode_response``."""
        ...

    def encode_fetched(self, *fields: int | str | bytes) -> bytes | None:
        """An answer up to its records; None for the twin, as above."""
        ...


class Choice(NamedTuple):
    module: NativeModule | None
    #: Why there is none.
    reason: str = ""
    #: Whether there should be one: what was built cannot be used.
    is_surprising: bool = False

    def __str__(self) -> str:
        return "native" if self.module is not None else f"Python, because {self.reason}"


def choose(environment: Mapping[str, str]) -> Choice:
    if environment.get(SWITCH) == "0":
        return Choice(None, f"{SWITCH}=0")
    try:
        module = _load()
    except ModuleNotFoundError:
        return Choice(None, "this installation was built without the native module")
    except (ImportError, OSError) as error:
        return Choice(None, f"the native module cannot be loaded: {_first_line(error)}", is_surprising=True)
    found = f"{getattr(module, 'VERSION', None)} ({getattr(module, 'INTERFACE', None)})"
    wanted = f"{quorate.__version__} ({INTERFACE})"
    if found != wanted:
        return Choice(None, f"the native module is of version {found}, not {wanted}", is_surprising=True)
    return Choice(cast(NativeModule, module))


def _load() -> object:
    loader: Any = quorate.__spec__.loader if quorate.__spec__ else None
    return _load_from_zip(loader) if isinstance(loader, zipimporter) else importlib.import_module(NAME)


def _load_from_zip(archive: zipimporter) -> object:
    if not FILE.endswith(tuple(EXTENSION_SUFFIXES)) or not hasattr(os, "memfd_create"):
        raise ModuleNotFoundError(NAME)
    try:
        content = archive.get_data(os.path.join(archive.archive, archive.prefix, "quorate", FILE))
    except OSError:
        raise ModuleNotFoundError(NAME) from None
    with open(os.memfd_create(FILE), "wb") as file:
        file.write(content)
        file.flush()
        loader = ExtensionFileLoader(NAME, f"/proc/self/fd/{file.fileno()}")
        spec = spec_from_loader(NAME, loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    sys.modules[NAME] = module
    return module


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


#: For the whole process.
choice: Final = choose(os.environ)
native: Final = choice.module
