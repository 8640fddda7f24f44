"""All requests of the matrix, in the order in which they are sent."""

from typing import Final

from tests.compat.security_matrix.case import Case
from tests.compat.security_matrix.group_cases import GROUP_CASES
from tests.compat.security_matrix.security_cases import SECURITY_CASES
from tests.compat.security_matrix.topic_cases import TOPIC_CASES

CASES: Final[tuple[Case, ...]] = (*TOPIC_CASES, *GROUP_CASES, *SECURITY_CASES)
