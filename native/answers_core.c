#include "answers_core.h"

#include <string.h>

enum {
    FIRST_PRODUCE_VERSION = 3,
    LAST_PRODUCE_VERSION = 13,
    FLEXIBLE_PRODUCE_VERSION = 9,
    PRODUCE_TOPIC_IDS_VERSION = 13,
    FIRST_FETCH_VERSION = 4,
    LAST_FETCH_VERSION = 18,
    FLEXIBLE_FETCH_VERSION = 12,
    FETCH_TOPIC_IDS_VERSION = 13,
    TOPIC_ID_SIZE = 16,
    NO_REPLICA = -1
};

typedef struct {
    uint8_t *out;
    size_t size;
    bool is_flexible;
} writer;

static void put(writer *to, uint64_t value, int size) {
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8)
        to->out[to->size++] = (uint8_t)(value >> shift);
}

static void put_int16(writer *to, int16_t value) { put(to, (uint16_t)value, 2); }

static void put_int32(writer *to, int32_t value) { put(to, (uint32_t)value, 4); }

static void put_int64(writer *to, int64_t value) { put(to, (uint64_t)value, 8); }

static void put_varint(writer *to, uint64_t value) {
    for (; value > 0x7F; value >>= 7)
        to->out[to->size++] = (uint8_t)(value | 0x80);
    to->out[to->size++] = (uint8_t)value;
}

/* Of an array or of bytes; -1 is null. */
static void put_length(writer *to, int64_t length) {
    if (to->is_flexible)
        put_varint(to, (uint64_t)(length + 1));
    else
        put_int32(to, (int32_t)length);
}

static void put_no_tags(writer *to) {
    if (to->is_flexible)
        to->out[to->size++] = 0;
}

static void put_topic(writer *to, const quorate_answer_start *start, bool is_named) {
    put_length(to, 1);
    if (is_named && to->is_flexible)
        put_varint(to, start->topic_size + 1);
    else if (is_named)
        put_int16(to, (int16_t)start->topic_size);
    memcpy(to->out + to->size, start->topic, start->topic_size);
    to->size += start->topic_size;
    put_length(to, 1);
}

static bool has_topic(const quorate_answer_start *start, bool is_named) {
    return is_named ? start->topic_size <= QUORATE_MOST_TOPIC_BYTES : start->topic_size == TOPIC_ID_SIZE;
}

static void put_size(writer *to, size_t behind) {
    writer front = {to->out, 0, false};
    put_int32(&front, (int32_t)(to->size + behind - 4));
}

size_t quorate_write_produced(const quorate_answer_start *start, const quorate_produced_answer *answer, uint8_t *out) {
    int version = start->api_version;
    bool is_named = version < PRODUCE_TOPIC_IDS_VERSION;
    if (version < FIRST_PRODUCE_VERSION || version > LAST_PRODUCE_VERSION || !has_topic(start, is_named))
        return 0;
    writer to = {out, 4, version >= FLEXIBLE_PRODUCE_VERSION};
    put_int32(&to, start->correlation_id);
    put_no_tags(&to);
    put_topic(&to, start, is_named);
    put_int32(&to, start->partition);
    put_int16(&to, 0);
    put_int64(&to, answer->base_offset);
    put_int64(&to, answer->log_append_time_ms);
    if (version >= 5)
        put_int64(&to, answer->log_start_offset);
    if (version >= 8) {
        put_length(&to, 0); /* Errors of records. */
        if (to.is_flexible)
            put_varint(&to, 0);
        else
            put_int16(&to, -1); /* The message of an error. */
    }
    put_no_tags(&to);
    put_no_tags(&to);
    put_int32(&to, start->throttle_time_ms);
    put_no_tags(&to);
    put_size(&to, 0);
    return to.size;
}

size_t quorate_write_fetched(const quorate_answer_start *start, const quorate_fetched_answer *answer, uint8_t *out,
                             size_t *tail_size) {
    int version = start->api_version;
    bool is_named = version < FETCH_TOPIC_IDS_VERSION;
    if (version < FIRST_FETCH_VERSION || version > LAST_FETCH_VERSION || !has_topic(start, is_named) ||
        answer->records_size > INT32_MAX - QUORATE_MOST_ANSWER_BYTES || (version < 7 && answer->session_id != 0))
        return 0;
    writer to = {out, 4, version >= FLEXIBLE_FETCH_VERSION};
    put_int32(&to, start->correlation_id);
    put_no_tags(&to);
    put_int32(&to, start->throttle_time_ms);
    if (version >= 7) {
        put_int16(&to, 0);
        put_int32(&to, answer->session_id);
    }
    put_topic(&to, start, is_named);
    put_int32(&to, start->partition);
    put_int16(&to, 0);
    put_int64(&to, answer->high_watermark);
    put_int64(&to, answer->last_stable_offset);
    if (version >= 5)
        put_int64(&to, answer->log_start_offset);
    put_length(&to, answer->has_aborted_transactions ? 0 : -1);
    if (version >= 11)
        put_int32(&to, NO_REPLICA);
    put_length(&to, answer->records_size);
    *tail_size = to.is_flexible ? 3 : 0;
    put_size(&to, answer->records_size + *tail_size);
    return to.size;
}
