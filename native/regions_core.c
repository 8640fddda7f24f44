#include "regions_core.h"

#include <string.h>

#include "batch_header.h"
#include "crc32c_core.h"

#define NO_TIMESTAMP (-1)
#define NO_OFFSET (-1)
#define NO_EPOCH (-1)

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
