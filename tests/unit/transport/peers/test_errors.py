"""Telling that nobody listens from every other failure to connect."""

import pytest

from quorate.transport.peers.errors import is_refusal

REFUSED = "[Errno 111] Connect call failed ('::1', 9094, 0, 0)"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (OSError(f"Multiple exceptions: {REFUSED}, {REFUSED.replace('::1', '127.0.0.1')}"), True),
        (OSError(f"Multiple exceptions: {REFUSED}, [Errno 113] No route to host"), False),
        (OSError(113, "No route to host"), False),
        (ConnectionResetError(104, "Connection reset by peer"), False),
        (TimeoutError(), False),
        (OSError(), False),
        (OverflowError("port must be 0-65535"), False),
    ],
)
def test_only_a_host_that_refuses_at_every_address_counts_as_gone(error: Exception, expected: bool) -> None:
    assert is_refusal(error) is expected
