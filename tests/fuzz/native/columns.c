/* The walk over records that become columns. An input is record batches without compression, as on the wire. */

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "columns_core.h"

#define HEADER_BYTES 61
#define MOST_BATCHES 4
#define INT64_LEAST (-INT64_MAX - 1)

/* In the order of Totals. */
typedef int64_t Numbers[sizeof(Totals) / sizeof(int64_t)];

static const uint8_t *read_batch(const uint8_t *data, const uint8_t *end, Batch *batch) {
    const uint8_t *records = data + HEADER_BYTES;
    int64_t length = (int32_t)fuzz_number(data + 8, 4), size = length + 12 - HEADER_BYTES, room = end - records;
    size = size < 0 || size > room ? room : size;
    *batch = (Batch){
        .records = fuzz_copy(records, (size_t)size),
        .size_bytes = size,
        .base_offset = fuzz_number(data, 8),
        .timestamp_type = data[22] >> 3 & 1,
        .last_offset_delta = (int32_t)fuzz_number(data + 23, 4),
        .base_timestamp = fuzz_number(data + 27, 8),
        .max_timestamp = fuzz_number(data + 35, 8),
        .record_count = (int32_t)fuzz_number(data + 57, 4),
    };
    return records + size;
}

static BinaryColumn binary(int64_t rows, int64_t nulls, int64_t size) {
    return (BinaryColumn){
        .validity = nulls ? fuzz_memory((size_t)(rows + 7) / 8) : NULL,
        .ends = fuzz_memory((size_t)(rows + 1) * sizeof(int32_t)),
        .data = fuzz_memory((size_t)size),
    };
}

static void forget(BinaryColumn *column) {
    free(column->validity);
    free(column->ends);
    free(column->data);
}

static void check_ends(const int32_t *ends, int64_t rows, int64_t size) {
    CHECK(ends[0] == 0);
    for (int64_t row = 0; row < rows; row++)
        CHECK(ends[row] <= ends[row + 1]);
    CHECK(ends[rows] == size);
}

static int64_t filled(const Batch *batches, int64_t count, const Bounds *bounds, const Totals *room, int is_whole) {
    size_t rows = (size_t)room->rows;
    Columns columns = {
        .offsets = fuzz_memory(rows * sizeof(int64_t)),
        .timestamps = fuzz_memory(rows * sizeof(int64_t)),
        .timestamp_validity = room->null_timestamps ? fuzz_memory((rows + 7) / 8) : NULL,
        .timestamp_types = fuzz_memory(rows * sizeof(int32_t)),
        .keys = binary(room->rows, room->key_nulls, room->key_bytes),
        .values = binary(room->rows, room->value_nulls, room->value_bytes),
        .header_ends = fuzz_memory((rows + 1) * sizeof(int32_t)),
        .header_keys = binary(room->headers, 0, room->header_key_bytes),
        .header_values = binary(room->headers, room->header_value_nulls, room->header_value_bytes),
    };
    int64_t damaged = quorate_fill(batches, count, bounds, room, &columns);
    if (is_whole) {
        check_ends(columns.keys.ends, room->rows, room->key_bytes);
        check_ends(columns.values.ends, room->rows, room->value_bytes);
        check_ends(columns.header_ends, room->rows, room->headers);
        check_ends(columns.header_keys.ends, room->headers, room->header_key_bytes);
        check_ends(columns.header_values.ends, room->headers, room->header_value_bytes);
    }
    free(columns.offsets);
    free(columns.timestamps);
    free(columns.timestamp_validity);
    free(columns.timestamp_types);
    free(columns.header_ends);
    forget(&columns.keys);
    forget(&columns.values);
    forget(&columns.header_keys);
    forget(&columns.header_values);
    return damaged;
}

static int walked(const Batch *batches, int64_t count, const Bounds *bounds) {
    Totals totals;
    int64_t damaged = quorate_measure(batches, count, bounds, &totals);
    CHECK(damaged >= -1 && damaged < count);
    if (damaged >= 0)
        return 0;
    CHECK(filled(batches, count, bounds, &totals, 1) == -1);
    /* With less room, as if the bytes had been changed since they were measured. */
    Numbers numbers;
    size_t chosen = (size_t)(totals.rows + totals.value_bytes) % (sizeof numbers / sizeof *numbers);
    memcpy(numbers, &totals, sizeof totals);
    if (numbers[chosen]-- == 0)
        return 1;
    memcpy(&totals, numbers, sizeof totals);
    CHECK(filled(batches, count, bounds, &totals, 0) != -1);
    return 1;
}

int fuzz_one(const uint8_t *data, size_t size) {
    Batch batches[MOST_BATCHES] = {0};
    int64_t count = 0;
    const uint8_t *end = data + size;
    while (count < MOST_BATCHES && end - data >= HEADER_BYTES)
        data = read_batch(data, end, &batches[count++]);
    Bounds everything = {INT64_LEAST, INT64_MAX, INT64_LEAST, INT64_MAX};
    int taken = walked(batches, count, &everything);
    if (count) {
        const Batch *first = batches;
        Bounds few = {first->base_offset, INT64_MAX, first->base_timestamp, first->max_timestamp};
        CHECK(walked(batches, count, &few) == taken);
    }
    while (count)
        free((void *)batches[--count].records);
    return taken && size;
}
