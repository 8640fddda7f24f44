"""Looking at a cluster, and again until what is wrong has either passed or lasted.

A look asks all nodes at once, each on a thread of its own, so that one that hangs does not hold up the others.
"""

import time
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from quorate.cli.doctor.asking import ask_all
from quorate.cli.doctor.belief import newest_beliefs
from quorate.cli.doctor.diagnosis import diagnose, information, lasting
from quorate.cli.doctor.facts import FoundCoordinator, Look, NodeAnswers, Silence, Trial
from quorate.cli.doctor.probes import Claims, find_coordinators, groups_by_partition, try_claims
from quorate.cli.doctor.report import Report
from quorate.client.admin.configs import Configs
from quorate.client.cluster import Cluster
from quorate.kernel.errors import QuorateError

_LOOK_INTERVAL_S: Final = 0.5
_MIN_ISR: Final = "min.insync.replicas"


class Examination:
    """Of one cluster. What rarely changes is asked for once."""

    def __init__(self, cluster: Cluster, executor: Executor, *, settle_s: float, writes: bool) -> None:
        self._cluster = cluster
        self._executor = executor
        self._settle_s = settle_s
        self._writes = writes
        self._min_isr: dict[str, int] = {}

    def examine(self) -> Report:
        """Look until nothing is wrong or the time is up; what every look has shown is told."""
        give_up_at = time.monotonic() + self._settle_s
        looks = [self._look()]
        while diagnose(looks[-1]) and (len(looks) == 1 or time.monotonic() < give_up_at):
            time.sleep(_LOOK_INTERVAL_S)
            looks.append(self._look())
        last = looks[-1]
        return Report(
            node_count=len(last.node_ids),
            partition_count=len(newest_beliefs(last.answers)),
            claims_tried=sum(len(look.trials) + len(look.coordinators) for look in looks),
            findings=lasting(looks),
            information=information(last),
        )

    def _look(self) -> Look:
        asked = ask_all(self._cluster, self._executor)
        claims = {name: belief.claim for name, belief in newest_beliefs(asked.answers).items()}
        self._learn_min_isr({name.topic for name in claims})
        tried = list(self._executor.map(lambda each: self._try(each, claims), asked.answers))
        return Look(
            answers=asked.answers,
            silences=[*asked.silences, *(each for each in tried if isinstance(each, Silence))],
            trials=[trial for each in tried if not isinstance(each, Silence) for trial in each[0]],
            coordinators=[found for each in tried if not isinstance(each, Silence) for found in each[1]],
            min_isr=self._min_isr,
            lost_bootstrap_servers=asked.lost_bootstrap_servers,
        )

    def _try(self, answers: NodeAnswers, claims: Claims) -> tuple[list[Trial], list[FoundCoordinator]] | Silence:
        node = answers.node
        try:
            connection = self._cluster.connection_to(node.address)
            trials = list(try_claims(connection, node.node_id, claims, writes=self._writes))
            groups = groups_by_partition(claims)
            found = list(find_coordinators(connection, node.node_id, groups)) if groups else []
        except QuorateError as error:
            return Silence(node=node, reason=str(error))
        return trials, found

    def _learn_min_isr(self, topics: set[str]) -> None:
        missing = topics - set(self._min_isr)
        if missing:
            with suppress(QuorateError):  # A guide and no more; who may not ask for configs is still examined.
                for topic, entries in Configs(self._cluster).describe_topics(sorted(missing)).items():
                    self._min_isr[topic] = int(entries[_MIN_ISR].value or 1)
