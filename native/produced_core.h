/* Produce and Fetch requests of the shape that nearly all have, and the checks of a produced batch. Without Python.
 *
 * Nothing here tells what is wrong: whatever is not of the usual shape is for the Python twins to judge.
 */
#ifndef QUORATE_PRODUCED_CORE_H
#define QUORATE_PRODUCED_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of the frame. */
typedef struct {
    size_t start;
    size_t size;
    bool is_null;
} quorate_span;

typedef struct {
    int16_t api_key;
    int16_t api_version;
    int32_t correlation_id;
    quorate_span client_id;
    /* Where the request's own fields begin. */
    size_t body_position;
} quorate_request_start;

/* One batch for one partition of one topic. */
typedef struct {
    quorate_span transactional_id;
    int16_t acks;
    int32_t timeout_ms;
    /* Null where the version names the topic by its id. */
    quorate_span topic;
    size_t topic_id_position;
    int32_t index;
    quorate_span records;
} quorate_produce_request;

/* One partition of one topic, or none: the next request of a session. */
typedef struct {
    int32_t replica_id;
    int32_t max_wait_ms;
    int32_t min_bytes;
    int32_t max_bytes;
    int8_t isolation_level;
    int32_t session_id;
    int32_t session_epoch;
    bool has_partition;
    quorate_span topic;
    size_t topic_id_position;
    int32_t partition;
    int32_t current_leader_epoch;
    int64_t fetch_offset;
    int32_t last_fetched_epoch;
    int64_t log_start_offset;
    int32_t partition_max_bytes;
    quorate_span rack_id;
} quorate_fetch_request;

enum { QUORATE_PRODUCE = 0, QUORATE_FETCH = 1 };

/* False where the frame is not of the usual shape. Bytes behind the request are passed over, as by the twins. */
bool quorate_read_start(const uint8_t *frame, size_t size, quorate_request_start *start);
bool quorate_read_produce(const uint8_t *frame, size_t size, const quorate_request_start *start,
                          quorate_produce_request *request);
bool quorate_read_fetch(const uint8_t *frame, size_t size, const quorate_request_start *start,
                        quorate_fetch_request *request);

/* The 61 bytes before the records of a batch. */
typedef struct {
    int64_t base_offset;
    int32_t batch_length;
    int32_t partition_leader_epoch;
    int8_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t record_count;
} quorate_batch_header;

enum { QUORATE_BATCH_HEADER_SIZE = 61, QUORATE_CRC_START = 21 };

/* Whether the bytes are one batch that a producer may send, but for its CRC; its header, where they are. */
bool quorate_read_produced_header(const uint8_t *batch, size_t size, int produce_version, bool may_have_holes,
                                  quorate_batch_header *header);

#endif
