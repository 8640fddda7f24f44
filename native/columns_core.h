/* The records of batches as the columns of Arrow. Knows nothing of Python. */

#ifndef QUORATE_COLUMNS_CORE_H
#define QUORATE_COLUMNS_CORE_H

#include <stdint.h>

/* The decompressed records of one batch, and what its header says of them. */
typedef struct {
    const uint8_t *records;
    int64_t size_bytes;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t last_offset_delta;
    int64_t record_count;
    int64_t timestamp_type;
} Batch;

/* The records that are wanted. The end of the offsets is excluded; both ends of the times are included. */
typedef struct {
    int64_t start_offset;
    int64_t end_offset;
    int64_t start_ms;
    int64_t end_ms;
} Bounds;

/* What one walk has found so far, or, as a limit, how much room there is. */
typedef struct {
    int64_t rows;
    int64_t null_timestamps;
    int64_t key_nulls;
    int64_t key_bytes;
    int64_t value_nulls;
    int64_t value_bytes;
    int64_t headers;
    int64_t header_key_bytes;
    int64_t header_value_nulls;
    int64_t header_value_bytes;
} Totals;

/* Values back to back, where each of them ends, and a bit for each that is not null: NULL where nothing is. */
typedef struct {
    uint8_t *validity;
    int32_t *ends;
    uint8_t *data;
} BinaryColumn;

typedef struct {
    int64_t *offsets;
    int64_t *timestamps;
    uint8_t *timestamp_validity;
    int32_t *timestamp_types;
    BinaryColumn keys;
    BinaryColumn values;
    int32_t *header_ends;
    BinaryColumn header_keys;
    BinaryColumn header_values;
} Columns;

/* Checks every record and finds out how much room they take: -1, or the number of the first batch that is damaged. */
int64_t quorate_measure(const Batch *batches, int64_t batch_count, const Bounds *bounds, Totals *totals);

/* Writes into columns with the measured room, in which bits and ends are zero. Another result than -1 means that the
 * batches were changed since they were measured: what the columns hold is of no use then. */
int64_t quorate_fill(
    const Batch *batches, int64_t batch_count, const Bounds *bounds, const Totals *room, Columns *columns
);

#endif
