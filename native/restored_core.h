/* Stored batches that go back to a broker as they are, but for a few fields of their headers. Pure; knows no Python. */

#ifndef QUORATE_RESTORED_CORE_H
#define QUORATE_RESTORED_CORE_H

#include <stddef.h>
#include <stdint.h>

#include "region.h"

#define QUORATE_HEADER_SIZE_BYTES 61

/* What a frame says of its batches, and what a restore asks of them. */
typedef struct {
    int64_t batch_count;
    int64_t base_offset;
    int64_t last_offset;
    int64_t from_offset; /* None begins before it. */
    int64_t end_offset;  /* All begin before it. */
    int64_t max_batch_bytes;
    int64_t end_ms; /* None is newer. */
} FrameRules;

typedef struct {
    int64_t size_bytes;
    int64_t record_count;
} PlainBatch;

typedef struct {
    int64_t producer_id;
    int32_t producer_epoch;
    int32_t base_sequence;
} Stamp;

/* Whether the region is what the frame says, and all of its batches go back as they are. */
int quorate_goes_whole(const Region *region, const FrameRules *rules);

/* The batch at a position of such a region. The header is as a producer sends it, but for the stamp and the CRC. */
PlainBatch quorate_plain_batch(const Region *region, int64_t position, uint8_t header[QUORATE_HEADER_SIZE_BYTES]);

/* Makes the batch a producer's, and renews its CRC: the delta of its last offset. -1, and nothing is changed, where the
 * twin has to be asked: it is transactional, of control, or no batch at all. */
int32_t quorate_stamp(uint8_t header[QUORATE_HEADER_SIZE_BYTES], const Region *records, const Stamp *stamp);

#endif
