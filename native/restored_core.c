#include "restored_core.h"

#include <string.h>

#include "batch_header.h"
#include "crc32c_core.h"

#define NO_EPOCH UINT32_MAX

_Static_assert(QUORATE_HEADER_SIZE_BYTES == HEADER_SIZE_BYTES, "two names of one size");

static int goes_back(const Batch *batch, const FrameRules *rules) {
    uint32_t attributes = read_uint16(batch->at + ATTRIBUTES_AT);
    int64_t record_count = read_int32(batch->at + RECORD_COUNT_AT);
    return !(attributes & ~(uint32_t)COMPRESSION_MASK) && record_count > 0
        && record_count == batch->last_offset - batch->base_offset + 1 && batch->base_offset >= rules->from_offset
        && batch->base_offset < rules->end_offset && batch->size_bytes <= rules->max_batch_bytes
        && read_int64(batch->at + MAX_TIMESTAMP_AT) <= rules->end_ms;
}

int quorate_goes_whole(const Region *region, const FrameRules *rules) {
    Batch batch;
    int64_t position = 0, batch_count = 0, last_offset = -1;
    while (position < region->size_bytes) {
        if (read_batch(region, position, &batch) != BATCH || !goes_back(&batch, rules))
            return 0;
        if (batch.base_offset <= last_offset || (!batch_count && batch.base_offset != rules->base_offset))
            return 0;
        last_offset = batch.last_offset;
        position += batch.size_bytes;
        batch_count++;
    }
    return batch_count > 0 && batch_count == rules->batch_count && last_offset == rules->last_offset;
}

PlainBatch quorate_plain_batch(const Region *region, int64_t position, uint8_t header[QUORATE_HEADER_SIZE_BYTES]) {
    Batch batch;
    PlainBatch plain = {0, 0};
    if (position < 0 || position > region->size_bytes || read_batch(region, position, &batch) != BATCH)
        return plain;
    memcpy(header, batch.at, HEADER_SIZE_BYTES);
    write_int64(header, 0); /* A compressed batch that does not count from 0 would be compressed again by the broker. */
    write_uint32(header + EPOCH_AT, NO_EPOCH);
    plain.size_bytes = batch.size_bytes;
    plain.record_count = read_int32(batch.at + RECORD_COUNT_AT);
    return plain;
}

int32_t quorate_stamp(uint8_t header[QUORATE_HEADER_SIZE_BYTES], const Region *records, const Stamp *stamp) {
    int32_t last_offset_delta = read_int32(header + LAST_OFFSET_DELTA_AT);
    int64_t length = HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES + records->size_bytes;
    if (header[MAGIC_AT] != MAGIC || read_int32(header + LENGTH_AT) != length || last_offset_delta < 0)
        return -1;
    if (read_uint16(header + ATTRIBUTES_AT) & (TRANSACTIONAL_MASK | CONTROL_MASK))
        return -1;
    write_int64(header + PRODUCER_AT, stamp->producer_id);
    write_uint16(header + PRODUCER_AT + 8, (uint32_t)stamp->producer_epoch);
    write_uint32(header + PRODUCER_AT + 10, (uint32_t)stamp->base_sequence);
    uint32_t crc = quorate_crc32c(0, header + ATTRIBUTES_AT, HEADER_SIZE_BYTES - ATTRIBUTES_AT);
    write_uint32(header + CRC_AT, quorate_crc32c(crc, records->data, (size_t)records->size_bytes));
    return last_offset_delta;
}
