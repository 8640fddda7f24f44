import pytest

from tests.chaos.reading_order import ReadingOrder
from tests.simulation.replication.history import HistoryBroken

EPOCHS = [0, 0, 2, 2, 2, 3]


def read_through(order: ReadingOrder, start: int = 0) -> None:
    for offset in range(start, len(EPOCHS)):
        order.read(offset, EPOCHS[offset])


@pytest.mark.parametrize("start", [2, 5])
def test_a_reader_may_go_back_to_where_an_epoch_begins(start: int) -> None:
    order = ReadingOrder()
    read_through(order)
    read_through(order, start)
    assert order.went_back == 1
    order.read(len(EPOCHS), 3)


@pytest.mark.parametrize("offset", [0, 1, 3, 4, 7])
def test_it_may_not_leave_out_records_nor_go_anywhere_else(offset: int) -> None:
    order = ReadingOrder()
    read_through(order)
    with pytest.raises(HistoryBroken, match=f"skipped from 6 to {offset}"):
        order.read(offset, 3)


def test_it_may_not_leave_out_records_after_going_back() -> None:
    order = ReadingOrder()
    read_through(order)
    order.read(2, 2)
    with pytest.raises(HistoryBroken, match="skipped from 3 to 4"):
        order.read(4, 2)


def test_a_record_keeps_its_epoch() -> None:
    order = ReadingOrder()
    read_through(order)
    with pytest.raises(HistoryBroken, match="read 2 in epoch 2, and then in 3"):
        order.read(2, 3)
