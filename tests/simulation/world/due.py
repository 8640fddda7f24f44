"""What is due at some time: calls on the loop of a host, and what happens to the network or a machine.

A run makes some ten thousand of these a second, so they hold what their call needs and do nothing else.
"""

from asyncio.events import AbstractEventLoop, Handle, TimerHandle
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol


class KernelEvent:
    """Something that belongs to no process, such as the arrival of a packet."""

    __slots__ = ("_args", "_callback", "_cancelled")

    _loop = _context = None

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True


class LoopHandle(Handle):
    """One of asyncio asks its loop each time whether it is debugged, which none of these is."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: AbstractEventLoop, context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class LoopTimer(TimerHandle):
    """Does not tell when it is due: uvloop's do not where that is at once."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: AbstractEventLoop, context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None

    __eq__ = Handle.__eq__
    __hash__ = Handle.__hash__
    _repr_info = Handle._repr_info  # type: ignore[attr-defined]

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            self._loop._timer_handle_cancelled(self)  # type: ignore[attr-defined]

    def when(self) -> float:
        raise AttributeError("'Handle' object has no attribute 'when'")


class Due(Protocol):
    """What the scheduler has to know of each of them."""

    #: Whose call it is; None for the kernel.
    _loop: Any
    _context: Any
    _callback: Any
    _args: Any
    _cancelled: bool
