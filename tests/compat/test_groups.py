"""Consumer groups: members share partitions, take over from one another, and go on where the group committed."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.compat.administration import add_partitions
from tests.compat.clients.client import Client, Reader, Record
from tests.compat.reading import read
from tests.eventually import eventually

pytestmark = pytest.mark.proves("classic groups: sharing, taking over, commits, static members, added partitions")

NOON_MS = 1_735_732_800_000
RECORDS = [Record(None, str(number).encode(), NOON_MS + number) for number in range(10)]


def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    client: Client, topic: str, group: str
) -> None:
    client.create_topic(topic, partitions=4)
    everything = {(topic, partition) for partition in range(4)}
    first = client.member(group, [topic])
    eventually(lambda: polled_assignments([first])[0] == everything, "one member with all partitions")

    with closing(client.member(group, [topic])) as second:

        def shared_evenly() -> bool:
            mine, theirs = polled_assignments([first, second])
            return len(mine) == len(theirs) == 2 and mine | theirs == everything

        eventually(shared_evenly, "two partitions for each member")
        first.close()
        eventually(lambda: polled_assignments([second])[0] == everything, "all partitions for who is left")


def test_members_together_read_every_record_once(client: Client, topic: str, group: str) -> None:
    client.create_topic(topic, partitions=4)
    with closing(client.member(group, [topic])) as first, closing(client.member(group, [topic])) as second:

        def both_have_partitions() -> bool:
            return all(len(each) == 2 for each in polled_assignments([first, second]))

        eventually(both_have_partitions, "partitions for both members")
        with closing(client.writer()) as writer:
            for partition in range(4):
                writer.write(topic, RECORDS, partition)
        seen: list[tuple[int, int]] = []

        def all_seen() -> bool:
            for member in (first, second):
                seen.extend((stored.partition, stored.offset) for stored in member.poll())
            return len(seen) >= 40

        eventually(all_seen, "40 records")

    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(10)]


def test_group_goes_on_after_what_it_committed(client: Client, topic: str, group: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
        with closing(client.member(group, [topic])) as member:
            read(member, 10)
            member.commit()
        writer.write(topic, RECORDS[:3])

    with closing(client.member(group, [topic])) as member:
        assert [stored.offset for stored in read(member, 3)] == [10, 11, 12]


def test_group_that_never_committed_reads_again(client: Client, topic: str, group: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
    for _ in range(2):
        with closing(client.member(group, [topic])) as member:
            assert [stored.offset for stored in read(member, 10)] == list(range(10))


def test_groups_do_not_see_one_anothers_offsets(client: Client, topic: str, group: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
    for name in (f"{group}-a", f"{group}-b"):
        with closing(client.member(name, [topic])) as member:
            assert len(read(member, 10)) == 10
            member.commit()


def test_static_member_gets_its_partitions_back_without_a_rebalance(client: Client, topic: str, group: str) -> None:
    client.create_topic(topic, partitions=2)
    with closing(client.member(group, [topic], instance_id="one")) as one:
        two = client.member(group, [topic], instance_id="two")
        eventually(lambda: all(len(each) == 1 for each in polled_assignments([one, two])), "a partition for each")
        before = polled_assignments([one, two])
        two.close()

        with closing(client.member(group, [topic], instance_id="two")) as two_again:
            eventually(lambda: polled_assignments([one, two_again])[1], "the partition of the member that came back")
            assert polled_assignments([one, two_again]) == before


def test_member_gets_partitions_that_are_added_later(client: Client, bootstrap: str, topic: str, group: str) -> None:
    client.create_topic(topic, partitions=1)
    with closing(client.member(group, [topic])) as member:
        eventually(lambda: polled_assignments([member])[0], "the first partition")
        add_partitions(bootstrap, topic, 3)
        eventually(lambda: len(polled_assignments([member])[0]) == 3, "the added partitions")

        with closing(client.writer()) as writer:
            writer.write(topic, RECORDS[:2], partition=2)
        assert {(stored.partition, stored.offset) for stored in read(member, 2)} == {(2, 0), (2, 1)}


def test_group_reads_several_topics(client: Client, topic: str, group: str) -> None:
    topics = [f"{topic}.a", f"{topic}.b"]
    for name in topics:
        client.create_topic(name, partitions=2)
    with closing(client.writer()) as writer:
        for name in topics:
            writer.write(name, RECORDS[:5], partition=1)

    with closing(client.member(group, topics)) as member:
        assert {(stored.topic, stored.offset) for stored in read(member, 10)} == {
            (name, offset) for name in topics for offset in range(5)
        }


def polled_assignments(members: Sequence[Reader]) -> list[set[tuple[str, int]]]:
    """Each member's partitions, after a poll of all at once: a rebalance waits for every member to take part."""
    with ThreadPoolExecutor(len(members)) as threads:
        list(threads.map(lambda member: member.poll(), members))
    return [member.assignment() for member in members]
