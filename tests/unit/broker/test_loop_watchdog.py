import asyncio
import gc
import threading
from types import FrameType

from quorate.broker.loop_watchdog import LoopHold, LoopHolds, LoopWatchdog, describe_stack, stack_of


def hold(held_ms: int) -> LoopHold:
    return LoopHold(held_ms=held_ms, cpu_ms=1, by="broker.partitions:Partitions._open", api="create_topics")


def test_a_turn_that_took_too_long_is_told_in_one_line_that_names_what_did_it() -> None:
    holds = LoopHolds()

    line = holds.note(hold(1900), now_s=100.0)

    assert line == (
        "event loop held ms=1900 cpu_ms=1 by=broker.partitions:Partitions._open api=create_topics count=1 untold=0"
    )


def test_many_long_turns_are_all_counted_and_told_of_in_few_lines() -> None:
    holds = LoopHolds()

    lines = [holds.note(hold(60 + second), now_s=100.0 + second) for second in range(12)]

    assert [index for index, line in enumerate(lines) if line is not None] == [0, 10]
    assert "count=11 untold=9" in str(lines[10])
    assert (holds.count, holds.longest_ms) == (12, 71)


def test_a_stack_is_told_innermost_first_with_the_api_that_is_served() -> None:
    frames: list[FrameType] = []

    def inner() -> None:
        frames[:] = stack_of(threading.get_ident())[1:]

    def serve(handler: str) -> None:
        scope = {"__name__": "quorate.broker.handlers.topics", "inner": inner}
        exec(f"def {handler}():\n    inner()", scope)
        handle = scope[handler]
        assert callable(handle)
        handle()

    serve("create_topics")

    by, api = describe_stack(frames)

    assert by.endswith("inner<broker.handlers.topics:create_topics")
    assert api == "create_topics"

    serve("_create_one")

    assert describe_stack(frames)[1] == "topics"


def test_the_stack_of_another_thread_is_whole_and_that_of_none_is_empty() -> None:
    waiting, over = threading.Event(), threading.Event()

    def outer() -> None:
        inner()

    def inner() -> None:
        waiting.set()
        over.wait()

    thread = threading.Thread(target=outer)
    thread.start()
    waiting.wait()
    frames = stack_of(thread.ident or 0)
    over.set()
    thread.join()

    names = [frame.f_code.co_name for frame in frames]
    assert names[names.index("inner") + 1] == "outer"
    assert stack_of(-1) == []


def test_no_collection_comes_between_two_frames() -> None:
    began_in: list[int] = []

    def collecting(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            began_in.append(threading.get_ident())

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        else:
            waiting.set()
            over.wait()

    waiting, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=deep, args=(150,))
    thread.start()
    waiting.wait()
    thresholds = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(collecting)
    gc.set_threshold(20)  # Each of the frames is an object of its own.
    try:
        frames = stack_of(thread.ident or 0)
        seen = list(began_in)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collecting)
        over.set()
        thread.join()

    assert len(frames) > 150
    assert len(seen) <= 1, "only the one that has become due meanwhile"


def test_the_watchdog_names_what_holds_a_real_loop() -> None:
    holds = NotedHolds()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        watchdog = LoopWatchdog(loop, holds)
        watchdog.start()
        hold_the_loop()
        await loop.run_in_executor(None, holds.noted.wait, 60)
        watchdog.stop()

    asyncio.run(run())

    assert holds.latest is not None
    assert holds.latest.by.startswith("threading:")


class NotedHolds(LoopHolds):
    def __init__(self) -> None:
        super().__init__()
        self.noted = threading.Event()

    def note(self, hold: LoopHold, now_s: float) -> str | None:
        line = super().note(hold, now_s)
        self.noted.set()
        return line


def hold_the_loop() -> None:
    """Long enough to be seen by a watchdog on a busy machine; if it is seen, that is told once the loop turns."""
    threading.Event().wait(0.3)
