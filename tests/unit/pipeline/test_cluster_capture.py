from quorate.client.topic_partition import TopicPartition
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.pipeline.cluster_capture import ask_for_each


def partition(topic: str, index: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(index))


def test_one_partition_without_an_answer_holds_up_no_other() -> None:
    dead = partition("orders", 1)
    wanted = [partition("orders", 0), dead, partition("orders", 2), partition("payments", 0)]
    questions: list[int] = []

    def ask(some: list[TopicPartition]) -> dict[TopicPartition, int]:
        questions.append(len(some))
        if dead in some:
            raise QuorateError("no leader")
        return dict.fromkeys(some, 7)

    answers = ask_for_each(ask, wanted)

    assert {name for name, answer in answers.items() if answer == 7} == set(wanted) - {dead}
    assert isinstance(answers[dead], QuorateError)
    assert questions[0] == 4  # All at once first.


def test_nothing_wanted_asks_nothing() -> None:
    def ask(some: list[TopicPartition]) -> dict[TopicPartition, int]:
        raise AssertionError("asked for nothing")

    assert ask_for_each(ask, []) == {}
