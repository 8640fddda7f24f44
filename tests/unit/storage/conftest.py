"""A disk in memory for each test."""

from random import Random

import pytest

from quorate.storage.file_names import parent_of
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import DIRECTORY


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    disk.make_directory(parent_of(DIRECTORY))
    disk.sync_directory("/")
    return disk
