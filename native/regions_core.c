#include "regions_core.h"

#include <string.h>

#include "crc32c_core.h"

#define HEADER_SIZE_BYTES 61
#define LOG_OVERHEAD_BYTES 12
#define MAGIC 2
#define NO_TIMESTAMP (-1)
#define NO_OFFSET (-1)
#define NO_EPOCH (-1)

enum { LENGTH_AT = 8, EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, LAST_OFFSET_DELTA_AT = 23 };
enum { BASE_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, RECORD_COUNT_AT = 57 };

enum { COMPRESSION_MASK = 0x07, TIMESTAMP_TYPE_MASK = 0x08, CONTROL_MASK = 0x20, DELETE_HORIZON_MASK = 0x40 };

typedef struct {
    const uint8_t *at;
    int64_t size_bytes;
    int64_t base_offset;
    int64_t last_offset;
    int64_t leader_epoch;
} Batch;

typedef enum { BATCH, NOTHING_WHOLE, ODD } Found;

static inline uint32_t read_uint32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t read_int32(const uint8_t *at) {
    return (int32_t)read_uint32(at);
}

static inline int64_t read_int64(const uint8_t *at) {
    return (int64_t)((uint64_t)read_uint32(at) << 32 | read_uint32(at + 4));
}

static inline uint32_t read_uint16(const uint8_t *at) {
    return (uint32_t)at[0] << 8 | at[1];
}

static Found read_batch(const Region *region, int64_t position, Batch *batch) {
    int64_t left = region->size_bytes - position;
    const uint8_t *at = region->data + position;
    if (left <= MAGIC_AT)
        return NOTHING_WHOLE;
    if (at[MAGIC_AT] != MAGIC)
        return ODD;
    if (left < HEADER_SIZE_BYTES)
        return NOTHING_WHOLE;
    int64_t size_bytes = (int64_t)read_int32(at + LENGTH_AT) + LOG_OVERHEAD_BYTES;
    if (size_bytes < HEADER_SIZE_BYTES)
        return ODD;
    if (size_bytes > left)
        return NOTHING_WHOLE;
    int64_t base_offset = read_int64(at), last_offset_delta = read_int32(at + LAST_OFFSET_DELTA_AT);
    int64_t limit = (last_offset_delta > 0 ? INT64_MAX : INT64_MIN) - last_offset_delta;
    if (last_offset_delta > 0 ? base_offset > limit : base_offset < limit)
        return ODD;
    batch->at = at;
    batch->size_bytes = size_bytes;
    batch->base_offset = base_offset;
    batch->last_offset = base_offset + last_offset_delta;
    batch->leader_epoch = read_int32(at + EPOCH_AT);
    return batch->last_offset == INT64_MAX ? ODD : BATCH; /* The offset behind it has to have 64 bits, too. */
}

/* The lowest base offset at or behind an offset. */
static int64_t lowest_base_offset(const Region *region, int64_t from_offset) {
    Batch batch;
    int64_t lowest = NO_OFFSET;
    for (int64_t position = 0; read_batch(region, position, &batch) == BATCH; position += batch.size_bytes)
        if (batch.base_offset >= from_offset && (lowest == NO_OFFSET || batch.base_offset < lowest))
            lowest = batch.base_offset;
    return lowest;
}

int quorate_cut_region(const Region *region, const CutRange *range, RegionCut *cut) {
    Batch batch;
    Found found;
    int64_t position = 0, passed = 0; /* Batches from the first of the range on. */
    int has_begun = 0, is_empty = 1;
    memset(cut, 0, sizeof *cut);
    cut->last_offset = NO_OFFSET;
    cut->leader_epoch = NO_EPOCH;
    while ((found = read_batch(region, position, &batch)) == BATCH) {
        int64_t end = position + batch.size_bytes;
        is_empty = 0;
        cut->region_last_offset = batch.last_offset;
        if (!has_begun && batch.last_offset >= range->start_offset) {
            has_begun = 1;
            cut->start = position;
        }
        passed += has_begun;
        int64_t reaches = range->include_batch_across_end ? batch.base_offset : batch.last_offset;
        if (has_begun && reaches < range->end_offset) {
            cut->end = end;
            cut->batch_count = passed;
            cut->last_offset = batch.last_offset;
            cut->leader_epoch = batch.leader_epoch;
        }
        position = end;
    }
    if (!cut->batch_count)
        cut->start = 0;
    int64_t next_offset = cut->batch_count ? cut->last_offset + 1 : range->start_offset;
    cut->outside_offset = lowest_base_offset(region, next_offset);
    return found != ODD && !is_empty && range->start_offset >= 0;
}

int quorate_check_region(const Region *region) {
    Batch batch;
    int64_t position = 0;
    while (position < region->size_bytes) {
        if (read_batch(region, position, &batch) != BATCH)
            return 0;
        uint32_t crc = quorate_crc32c(0, batch.at + ATTRIBUTES_AT, (size_t)(batch.size_bytes - ATTRIBUTES_AT));
        if (crc != read_uint32(batch.at + CRC_AT))
            return 0;
        position += batch.size_bytes;
    }
    return 1;
}

static inline int keeps_to(const StretchRules *rules, const Stretch *stretch, const Batch *batch, int64_t next_offset) {
    uint32_t attributes = read_uint16(batch->at + ATTRIBUTES_AT);
    int is_compressed = (attributes & COMPRESSION_MASK) != 0;
    /* Only the records themselves tell the times of such a batch. */
    int hides_times = (attributes & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK)) == DELETE_HORIZON_MASK
        && read_int32(batch->at + RECORD_COUNT_AT) != 0;
    return batch->size_bytes <= rules->room_bytes - stretch->size_bytes && is_compressed == rules->is_compressed
        && !hides_times && (batch->leader_epoch < 0 || batch->leader_epoch == rules->leader_epoch)
        && batch->base_offset >= next_offset && batch->last_offset >= batch->base_offset
        && batch->base_offset < rules->end_offset && (!rules->ends_before || batch->last_offset < rules->end_offset);
}

static inline void add(Stretch *stretch, const Batch *batch, int64_t next_offset) {
    uint32_t attributes = read_uint16(batch->at + ATTRIBUTES_AT);
    int64_t record_count = read_int32(batch->at + RECORD_COUNT_AT);
    int64_t max_timestamp = record_count ? read_int64(batch->at + MAX_TIMESTAMP_AT) : NO_TIMESTAMP;
    int64_t min_timestamp = max_timestamp;
    if (record_count && !(attributes & TIMESTAMP_TYPE_MASK))
        min_timestamp = read_int64(batch->at + BASE_TIMESTAMP_AT);
    int has_minimum = stretch->min_timestamp != NO_TIMESTAMP;
    if (min_timestamp != NO_TIMESTAMP && (!has_minimum || min_timestamp < stretch->min_timestamp))
        stretch->min_timestamp = min_timestamp;
    if (!stretch->batch_count || max_timestamp > stretch->max_timestamp)
        stretch->max_timestamp = max_timestamp;
    if (batch->size_bytes > stretch->largest_batch_bytes)
        stretch->largest_batch_bytes = batch->size_bytes;
    int is_dense = record_count > 0 && record_count == batch->last_offset - batch->base_offset + 1;
    stretch->is_plain &= !(attributes & ~(uint32_t)COMPRESSION_MASK) && is_dense && batch->base_offset == next_offset;
    stretch->batch_count++;
    stretch->size_bytes += batch->size_bytes;
    stretch->last_offset = batch->last_offset;
    stretch->record_count += record_count;
    if (attributes & CONTROL_MASK)
        stretch->control_record_count += record_count;
}

void quorate_follow(const Region *region, const StretchRules *rules, Stretch *stretch) {
    Batch batch;
    int64_t position = rules->position, next_offset = rules->next_offset;
    memset(stretch, 0, sizeof *stretch);
    stretch->min_timestamp = stretch->max_timestamp = NO_TIMESTAMP;
    stretch->is_plain = 1;
    if (position < 0 || position > region->size_bytes || rules->room_bytes < 0)
        return;
    while (read_batch(region, position, &batch) == BATCH && keeps_to(rules, stretch, &batch, next_offset)) {
        add(stretch, &batch, next_offset);
        position += batch.size_bytes;
        next_offset = batch.last_offset + 1;
    }
}
