/* A frame that goes back as it is: what is said of it keeps to its bounds, and what is stamped is sound. */

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "regions_core.h"
#include "restored_core.h"

/* The batch with the stamp is one that a broker takes. */
static void stamp(const Region *region, int64_t position, const uint8_t *header, PlainBatch plain, int64_t number) {
    Stamp stamp = {number, (int32_t)(number & 0x7FFF), (int32_t)(number & INT32_MAX)};
    uint8_t *batch = fuzz_copy(region->data + position, (size_t)plain.size_bytes);
    memcpy(batch, header, QUORATE_HEADER_SIZE_BYTES);
    Region records = {batch + QUORATE_HEADER_SIZE_BYTES, plain.size_bytes - QUORATE_HEADER_SIZE_BYTES};
    CHECK(quorate_stamp(batch, &records, &stamp) == plain.record_count - 1);
    Region whole = {batch, plain.size_bytes};
    CHECK(quorate_check_region(&whole));
    CHECK(fuzz_number(batch + 43, 8) == number);
    free(batch);
}

int fuzz_one(const uint8_t *data, size_t size) {
    Region region = {data, (int64_t)size};
    CutRange everything = {0, INT64_MAX, 1};
    RegionCut cut;
    uint8_t header[QUORATE_HEADER_SIZE_BYTES];
    if (size >= sizeof header) {
        Stamp other = {7, 1, 2};
        Region records = {data + sizeof header, (int64_t)(size - sizeof header)};
        memcpy(header, data, sizeof header);
        int32_t delta = quorate_stamp(header, &records, &other);
        CHECK(delta >= 0 || !memcmp(header, data, sizeof header));
    }
    if (!quorate_cut_region(&region, &everything, &cut))
        return 0;
    FrameRules rules = {
        cut.batch_count, fuzz_number(data, 8), cut.region_last_offset, 0, INT64_MAX, (int64_t)size, INT64_MAX,
    };
    if (!quorate_goes_whole(&region, &rules))
        return 0;
    int64_t position = 0, batch_count = 0;
    while (position < region.size_bytes) {
        PlainBatch plain = quorate_plain_batch(&region, position, header);
        CHECK(plain.size_bytes >= QUORATE_HEADER_SIZE_BYTES && plain.record_count > 0);
        stamp(&region, position, header, plain, fuzz_number(data + position, 8));
        position += plain.size_bytes;
        batch_count++;
    }
    CHECK(position == region.size_bytes && batch_count == rules.batch_count);
    CHECK(!quorate_plain_batch(&region, position, header).size_bytes);
    return 1;
}
