/* The answers to Produce and Fetch about one partition without an error: what stands before and behind the records.
 * Knows nothing of Python. */

#ifndef QUORATE_ANSWERS_CORE_H
#define QUORATE_ANSWERS_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No topic has a longer name, and no answer more around it. */
enum { QUORATE_MOST_TOPIC_BYTES = 249, QUORATE_MOST_ANSWER_BYTES = 512 };

typedef struct {
    int32_t correlation_id;
    int api_version;
    /* Its name or, in versions that have that, the 16 bytes of its id. */
    const uint8_t *topic;
    size_t topic_size;
    int32_t throttle_time_ms;
    int32_t partition;
} quorate_answer_start;

typedef struct {
    int64_t base_offset;
    int64_t log_append_time_ms;
    int64_t log_start_offset;
} quorate_produced_answer;

typedef struct {
    int32_t session_id;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t log_start_offset;
    /* Whether there is a list of aborted transactions, an empty one. */
    bool has_aborted_transactions;
    uint32_t records_size;
} quorate_fetched_answer;

/* How many bytes of `out` were filled, which has QUORATE_MOST_ANSWER_BYTES; 0 where there is no such answer. */
size_t quorate_write_produced(const quorate_answer_start *start, const quorate_produced_answer *answer, uint8_t *out);

/* The same, up to the records. Behind them stand so many zeros: `*tail_size`. */
size_t quorate_write_fetched(const quorate_answer_start *start, const quorate_fetched_answer *answer, uint8_t *out,
                             size_t *tail_size);

#endif
