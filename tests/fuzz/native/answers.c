/* Whatever an answer says, it has room, and begins with its own size. */

#include "fuzz.h"

#include <stdlib.h>

#include "answers_core.h"

enum { FIXED_BYTES = 46 };

static void check_answer(const uint8_t *out, size_t size, size_t behind) {
    if (size == 0)
        return;
    CHECK(size <= QUORATE_MOST_ANSWER_BYTES);
    CHECK((size_t)fuzz_number(out, 4) == size - 4 + behind);
}

int fuzz_one(const uint8_t *data, size_t size) {
    if (size < FIXED_BYTES)
        return 0;
    quorate_answer_start start = {
        .correlation_id = (int32_t)fuzz_number(data, 4),
        .api_version = data[4] % 24,
        .topic = data + FIXED_BYTES,
        .topic_size = size - FIXED_BYTES,
        .throttle_time_ms = (int32_t)fuzz_number(data + 5, 4),
        .partition = (int32_t)fuzz_number(data + 9, 4),
    };
    quorate_produced_answer produced = {
        fuzz_number(data + 13, 8), fuzz_number(data + 21, 8), fuzz_number(data + 29, 8),
    };
    quorate_fetched_answer fetched = {
        (int32_t)fuzz_number(data + 37, 4), produced.base_offset, produced.log_append_time_ms,
        produced.log_start_offset,          data[41] & 1,         (uint32_t)fuzz_number(data + 42, 4),
    };
    uint8_t *out = fuzz_memory(QUORATE_MOST_ANSWER_BYTES);
    size_t tail_size = 0, of_produced = quorate_write_produced(&start, &produced, out);
    check_answer(out, of_produced, 0);
    size_t of_fetched = quorate_write_fetched(&start, &fetched, out, &tail_size);
    check_answer(out, of_fetched, fetched.records_size + tail_size);
    free(out);
    return of_produced || of_fetched;
}
