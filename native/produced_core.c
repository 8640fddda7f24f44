#include "produced_core.h"

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
    FIRST_PRODUCE_VERSION_WITH_ZSTD = 7,
    MOST_STRING_BYTES = 0x7FFF,
    TOPIC_ID_SIZE = 16,
    LOG_OVERHEAD = 12,
    MAGIC = 2,
    COMPRESSION_MASK = 0x07,
    TIMESTAMP_TYPE_MASK = 0x08,
    TRANSACTIONAL_MASK = 0x10,
    CONTROL_MASK = 0x20,
    ZSTD = 4
};

static uint16_t uint16_at(const uint8_t *bytes) { return (uint16_t)(bytes[0] << 8 | bytes[1]); }

static uint32_t uint32_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint64_t uint64_at(const uint8_t *bytes) { return (uint64_t)uint32_at(bytes) << 32 | uint32_at(bytes + 4); }

/* Conversions that are the same on every compiler: the value is two's complement in all of them. */
static int16_t int16_at(const uint8_t *bytes) {
    uint16_t value = uint16_at(bytes);
    int16_t result;
    memcpy(&result, &value, sizeof result);
    return result;
}

static int32_t int32_at(const uint8_t *bytes) {
    uint32_t value = uint32_at(bytes);
    int32_t result;
    memcpy(&result, &value, sizeof result);
    return result;
}

static int64_t int64_at(const uint8_t *bytes) {
    uint64_t value = uint64_at(bytes);
    int64_t result;
    memcpy(&result, &value, sizeof result);
    return result;
}

/* A frame that is read field by field. Once it is odd, every further field is zero. */
typedef struct {
    const uint8_t *frame;
    size_t size;
    size_t position;
    bool is_flexible;
    bool is_odd;
} cursor;

/* The position of the next bytes; where there are too few of them, of nothing. */
static const uint8_t *take(cursor *at, size_t size) {
    static const uint8_t nothing[TOPIC_ID_SIZE] = {0};
    if (at->is_odd || size > at->size - at->position) {
        at->is_odd = true;
        return nothing;
    }
    const uint8_t *bytes = at->frame + at->position;
    at->position += size;
    return bytes;
}

static int8_t take_int8(cursor *at) {
    uint8_t value = *take(at, 1);
    int8_t result;
    memcpy(&result, &value, sizeof result);
    return result;
}

static int16_t take_int16(cursor *at) { return int16_at(take(at, 2)); }

static int32_t take_int32(cursor *at) { return int32_at(take(at, 4)); }

static int64_t take_int64(cursor *at) { return int64_at(take(at, 8)); }

static uint32_t take_varint(cursor *at) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t byte = *take(at, 1);
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            at->is_odd = at->is_odd || value > UINT32_MAX;
            return at->is_odd ? 0 : (uint32_t)value;
        }
    }
    at->is_odd = true;
    return 0;
}

/* A length or a count; -1 is null. */
static int64_t take_length(cursor *at, bool is_short) {
    if (at->is_flexible) {
        return (int64_t)take_varint(at) - 1;
    }
    return is_short ? take_int16(at) : take_int32(at);
}

static quorate_span take_span(cursor *at, int64_t length) {
    quorate_span span = {0, 0, length == -1};
    if (length == -1) {
        return span;
    }
    if (at->is_odd || length < 0 || (uint64_t)length > at->size - at->position) {
        at->is_odd = true;
        return span;
    }
    span.start = at->position;
    span.size = (size_t)length;
    at->position += span.size;
    return span;
}

static quorate_span take_nullable_string(cursor *at) {
    int64_t length = take_length(at, true);
    if (length > MOST_STRING_BYTES) {
        at->is_odd = true;
    }
    return take_span(at, length);
}

static quorate_span take_string(cursor *at) {
    quorate_span span = take_nullable_string(at);
    at->is_odd = at->is_odd || span.is_null;
    return span;
}

/* Hardly any request has tagged fields. */
static void take_no_tags(cursor *at) {
    if (at->is_flexible && *take(at, 1) != 0) {
        at->is_odd = true;
    }
}

static void take_one_element(cursor *at) {
    if (take_length(at, false) != 1) {
        at->is_odd = true;
    }
}

bool quorate_read_start(const uint8_t *frame, size_t size, quorate_request_start *start) {
    cursor at = {frame, size, 0, false, false};
    start->api_key = take_int16(&at);
    start->api_version = take_int16(&at);
    start->correlation_id = take_int32(&at);
    if (start->api_key == QUORATE_PRODUCE) {
        at.is_odd = at.is_odd || start->api_version < FIRST_PRODUCE_VERSION ||
                    start->api_version > LAST_PRODUCE_VERSION;
    } else {
        at.is_odd = at.is_odd || start->api_key != QUORATE_FETCH || start->api_version < FIRST_FETCH_VERSION ||
                    start->api_version > LAST_FETCH_VERSION;
    }
    /* Its length has two bytes even in a flexible header. */
    start->client_id = take_span(&at, take_int16(&at));
    at.is_flexible = start->api_version >= (start->api_key == QUORATE_PRODUCE ? (int)FLEXIBLE_PRODUCE_VERSION
                                                                              : (int)FLEXIBLE_FETCH_VERSION);
    take_no_tags(&at);
    start->body_position = at.position;
    return !at.is_odd;
}

static void take_topic(cursor *at, bool is_named, quorate_span *topic, size_t *topic_id_position) {
    *topic_id_position = at->position;
    topic->is_null = true;
    if (is_named) {
        *topic = take_string(at);
    } else {
        (void)take(at, TOPIC_ID_SIZE);
    }
}

bool quorate_read_produce(const uint8_t *frame, size_t size, const quorate_request_start *start,
                          quorate_produce_request *request) {
    cursor at = {frame, size, start->body_position, start->api_version >= FLEXIBLE_PRODUCE_VERSION, false};
    memset(request, 0, sizeof *request);
    request->transactional_id = take_nullable_string(&at);
    request->acks = take_int16(&at);
    request->timeout_ms = take_int32(&at);
    take_one_element(&at);
    take_topic(&at, start->api_version < PRODUCE_TOPIC_IDS_VERSION, &request->topic, &request->topic_id_position);
    take_one_element(&at);
    request->index = take_int32(&at);
    request->records = take_span(&at, take_length(&at, false));
    take_no_tags(&at);
    take_no_tags(&at);
    take_no_tags(&at);
    return !at.is_odd;
}

static void take_fetched_partition(cursor *at, int version, quorate_fetch_request *request) {
    take_topic(at, version < FETCH_TOPIC_IDS_VERSION, &request->topic, &request->topic_id_position);
    take_one_element(at);
    request->partition = take_int32(at);
    request->current_leader_epoch = version >= 9 ? take_int32(at) : -1;
    request->fetch_offset = take_int64(at);
    request->last_fetched_epoch = version >= 12 ? take_int32(at) : -1;
    request->log_start_offset = version >= 5 ? take_int64(at) : -1;
    request->partition_max_bytes = take_int32(at);
    take_no_tags(at);
    take_no_tags(at);
}

bool quorate_read_fetch(const uint8_t *frame, size_t size, const quorate_request_start *start,
                        quorate_fetch_request *request) {
    int version = start->api_version;
    cursor at = {frame, size, start->body_position, version >= FLEXIBLE_FETCH_VERSION, false};
    memset(request, 0, sizeof *request);
    request->replica_id = version <= 14 ? take_int32(&at) : -1;
    request->max_wait_ms = take_int32(&at);
    request->min_bytes = take_int32(&at);
    request->max_bytes = take_int32(&at);
    request->isolation_level = take_int8(&at);
    request->session_id = version >= 7 ? take_int32(&at) : 0;
    request->session_epoch = version >= 7 ? take_int32(&at) : -1;
    int64_t topics = take_length(&at, false);
    request->has_partition = topics == 1;
    if (topics == 1) {
        take_fetched_partition(&at, version, request);
    } else if (topics != 0) {
        return false;
    }
    if (version >= 7 && take_length(&at, false) != 0) {
        return false;
    }
    request->rack_id.is_null = true;
    if (version >= 11) {
        request->rack_id = take_string(&at);
    }
    take_no_tags(&at);
    return !at.is_odd;
}

static void read_batch_header(const uint8_t *batch, quorate_batch_header *header) {
    uint8_t magic = batch[16];
    header->base_offset = int64_at(batch);
    header->batch_length = int32_at(batch + 8);
    header->partition_leader_epoch = int32_at(batch + 12);
    memcpy(&header->magic, &magic, 1);
    header->crc = uint32_at(batch + 17);
    header->attributes = int16_at(batch + 21);
    header->last_offset_delta = int32_at(batch + 23);
    header->base_timestamp = int64_at(batch + 27);
    header->max_timestamp = int64_at(batch + 35);
    header->producer_id = int64_at(batch + 43);
    header->producer_epoch = int16_at(batch + 51);
    header->base_sequence = int32_at(batch + 53);
    header->record_count = int32_at(batch + 57);
}

static bool may_be_sent(int attributes, int produce_version) {
    int codec = attributes & COMPRESSION_MASK;
    return codec <= ZSTD && (codec != ZSTD || produce_version >= FIRST_PRODUCE_VERSION_WITH_ZSTD) &&
           !(attributes & (CONTROL_MASK | TIMESTAMP_TYPE_MASK));
}

static bool has_sound_offsets(const quorate_batch_header *header, bool may_have_holes) {
    int64_t count = header->record_count, delta = header->last_offset_delta;
    if (may_have_holes) {
        return count >= 0 && delta >= 0 && delta >= count - 1;
    }
    return count > 0 && delta == count - 1;
}

static bool has_sound_producer(const quorate_batch_header *header) {
    if (header->producer_id <= -1) {
        return !(header->attributes & TRANSACTIONAL_MASK);
    }
    return header->base_sequence >= 0 && header->producer_epoch >= 0;
}

bool quorate_read_produced_header(const uint8_t *batch, size_t size, int produce_version, bool may_have_holes,
                                  quorate_batch_header *header) {
    if (size < QUORATE_BATCH_HEADER_SIZE) {
        return false;
    }
    read_batch_header(batch, header);
    return header->magic == MAGIC && (int64_t)header->batch_length + LOG_OVERHEAD == (int64_t)size &&
           may_be_sent(header->attributes, produce_version) && has_sound_offsets(header, may_have_holes) &&
           has_sound_producer(header);
}
