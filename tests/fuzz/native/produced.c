/* Requests and headers that were taken lie within the bytes that they were read from. */

#include "fuzz.h"

#include "produced_core.h"

static void check_span(quorate_span span, size_t size) {
    CHECK(span.start <= size && span.size <= size - span.start);
    CHECK(!span.is_null || span.size == 0);
}

static int take_request(const uint8_t *frame, size_t size) {
    quorate_request_start start;
    if (!quorate_read_start(frame, size, &start))
        return 0;
    check_span(start.client_id, size);
    CHECK(start.body_position <= size);
    if (start.api_key == QUORATE_PRODUCE) {
        quorate_produce_request request;
        if (!quorate_read_produce(frame, size, &start, &request))
            return 0;
        check_span(request.transactional_id, size);
        check_span(request.topic, size);
        check_span(request.records, size);
        CHECK(!request.topic.is_null || request.topic_id_position + 16 <= size);
        return 1;
    }
    quorate_fetch_request request;
    if (!quorate_read_fetch(frame, size, &start, &request))
        return 0;
    check_span(request.topic, size);
    check_span(request.rack_id, size);
    CHECK(!request.has_partition || !request.topic.is_null || request.topic_id_position + 16 <= size);
    return 1;
}

int fuzz_one(const uint8_t *data, size_t size) {
    quorate_batch_header header;
    int is_batch = 0;
    for (int version = 3; version <= 13; version += 4)
        is_batch += quorate_read_produced_header(data, size, version, version == 11, &header);
    CHECK(!is_batch || (size_t)header.batch_length + 12 == size);
    return take_request(data, size) || is_batch;
}
