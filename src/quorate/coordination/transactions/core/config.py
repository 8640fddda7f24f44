"""Settings of the transaction coordinator, with Kafka's defaults."""

import msgspec


class TransactionConfig(msgspec.Struct, frozen=True, kw_only=True):
    #: The longest timeout that a producer may ask for.
    max_timeout_ms: int = 900_000
    #: How long a transactional id is kept that nobody uses.
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1_000
    #: How often transactions that have outlived their timeout are looked for.
    timeout_check_interval_ms: int = 10_000
    #: How often transactional ids that nobody uses are looked for.
    expiry_check_interval_ms: int = 3_600_000
    #: Before the end of a transaction, whose markers are all written, is written again after a failure.
    completion_retry_ms: int = 100
