"""Where checkers say what they found. The first finding ends the run, after the step that led to it."""

from tests.simulation.world.world import World


class Findings:
    """Reported and not raised: checkers look on from inside the node, which would take an exception for its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Damage to the quorum's files was done on purpose: nodes may speak of it.
        self.expects_damage = False

    def report(self, checker: str, text: str) -> None:
        self._world.fail(self._world.scenario, f"[{checker}] {text}", None)
