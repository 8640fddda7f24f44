/* The header of a record batch of magic 2, as it stands on the wire. The twin is quorate/records/batch.py. */

#ifndef QUORATE_BATCH_HEADER_H
#define QUORATE_BATCH_HEADER_H

#include <stdint.h>

#include "region.h"

#define HEADER_SIZE_BYTES 61
#define LOG_OVERHEAD_BYTES 12
#define MAGIC 2

enum { LENGTH_AT = 8, EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, LAST_OFFSET_DELTA_AT = 23 };
enum { BASE_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, PRODUCER_AT = 43, RECORD_COUNT_AT = 57 };

enum { COMPRESSION_MASK = 0x07, TIMESTAMP_TYPE_MASK = 0x08, TRANSACTIONAL_MASK = 0x10 };
enum { CONTROL_MASK = 0x20, DELETE_HORIZON_MASK = 0x40 };

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

static inline void write_uint32(uint8_t *at, uint32_t number) {
    at[0] = (uint8_t)(number >> 24);
    at[1] = (uint8_t)(number >> 16);
    at[2] = (uint8_t)(number >> 8);
    at[3] = (uint8_t)number;
}

static inline void write_uint16(uint8_t *at, uint32_t number) {
    at[0] = (uint8_t)(number >> 8);
    at[1] = (uint8_t)number;
}

static inline void write_int64(uint8_t *at, int64_t number) {
    write_uint32(at, (uint32_t)((uint64_t)number >> 32));
    write_uint32(at + 4, (uint32_t)number);
}

/* The batch at a position of the region, whole. */
static inline Found read_batch(const Region *region, int64_t position, Batch *batch) {
    int64_t left = region->size_bytes - position;
    if (left <= MAGIC_AT)
        return NOTHING_WHOLE;
    const uint8_t *at = region->data + position;
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

#endif
