"""An object storage in memory that can be told to fail at its n-th call, as ``backup.objects.storage`` has it."""

from collections.abc import Callable, Iterable, Iterator

from quorate.backup.errors import ObjectExists, ObjectNotFound, StorageError
from quorate.backup.objects.storage import ObjectInfo, StorageLocation
from quorate.kernel.ports import Buffer


class MemoryStorage:
    """``fails_at`` counts calls from 1; ``fails_every`` means its multiples, too.

    Such a call fails before, or with ``fails_late`` after, it has its effect.
    """

    def __init__(
        self,
        *,
        fails_at: int | None = None,
        fails_every: int | None = None,
        fails_late: bool = False,
        enforces: bool = True,
    ) -> None:
        self.location = StorageLocation("memory:///test")
        self.contents: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        self.now_ms = 0
        self.calls = 0
        self.fails_at = fails_at
        self.fails_every = fails_every
        self.fails_late = fails_late
        self.enforces = enforces
        self.open_uploads = 0

    def url_of(self, name: str) -> str:
        return f"{self.location.url}/{name}"

    def check_reachable(self) -> None:
        self.call(lambda: None)

    def put_if_absent(self, name: str, content: bytes) -> None:
        def effect() -> None:
            if name in self.contents and self.enforces:
                raise ObjectExists(f"{name} exists already")
            self.store(name, content)

        self.call(effect)

    def replace(self, name: str, content: bytes) -> None:
        self.call(lambda: self.store(name, content))

    def open_upload(self, name: str) -> "MemoryUpload":
        self.call(lambda: None)
        return MemoryUpload(self, name)

    def read(self, name: str) -> bytes:
        self.call(lambda: None)
        try:
            return self.contents[name]
        except KeyError:
            raise ObjectNotFound(f"{name} does not exist") from None

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        return self.read(name)[position : position + length]

    def info(self, name: str) -> ObjectInfo:
        return ObjectInfo(name=name, size_bytes=len(self.read(name)), modified_ms=self.modified_ms[name])

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.call(lambda: None)
        for name, content in sorted(self.contents.items()):
            if name.startswith(prefix):
                yield ObjectInfo(name=name, size_bytes=len(content), modified_ms=self.modified_ms[name])

    def folders(self) -> list[str]:
        self.call(lambda: None)
        return sorted({name.partition("/")[0] for name in self.contents})

    def delete(self, name: str) -> None:
        self.call(lambda: self.contents.pop(name, None))

    def store(self, name: str, content: bytes) -> None:
        self.contents[name] = content
        self.modified_ms[name] = self.now_ms

    def call(self, effect: Callable[[], object]) -> None:
        self.calls += 1
        fails = self.calls == self.fails_at or (self.fails_every is not None and self.calls % self.fails_every == 0)
        if not fails or self.fails_late:
            effect()
        if fails:
            raise StorageError(f"call {self.calls} failed")


class MemoryUpload:
    def __init__(self, storage: MemoryStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._parts: list[bytes] = []
        self._is_open = True
        storage.open_uploads += 1

    def write(self, pieces: Iterable[Buffer]) -> None:
        self._storage.call(lambda: self._parts.extend(bytes(piece) for piece in pieces))

    def complete(self) -> None:
        self._storage.call(lambda: self._storage.store(self._name, b"".join(self._parts)))
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._storage.open_uploads -= 1
