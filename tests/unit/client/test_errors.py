"""What an answer's code becomes: nothing, or one sentence."""

import pytest

from quorate.client.errors import check
from quorate.kernel.errors import ErrorCode, KafkaError


def test_what_went_well_is_no_error() -> None:
    check(ErrorCode.NONE, "list the topics", "unused")


@pytest.mark.parametrize(
    ("code", "message", "sentence"),
    [
        (ErrorCode.INVALID_CONFIG, "no such config", "cannot do it: no such config"),
        (ErrorCode.INVALID_CONFIG, None, "cannot do it: INVALID_CONFIG"),
        (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "Request Request(processor=2, buffer=java.nio.HeapByteBuffer[pos=67]) needs DESCRIBE permission.",
            "cannot do it: the cluster does not allow it to this user (CLUSTER_AUTHORIZATION_FAILED)",
        ),
        (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            None,
            "cannot do it: the cluster does not allow it to this user (GROUP_AUTHORIZATION_FAILED)",
        ),
    ],
)
def test_a_refusal_is_one_sentence(code: ErrorCode, message: str | None, sentence: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check(code, "do it", message)
    assert str(refused.value) == sentence
    assert refused.value.code is code
