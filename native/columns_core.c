/* Walks over the records of batches and writes Arrow's columns.
 *
 * The walk runs twice: once to check every byte and to measure, once to write into memory of the measured size. Both
 * are the same function, so that they cannot disagree; whatever the bytes are, nothing outside of the given memory is
 * read or written. */

#include "columns_core.h"

#include <stddef.h>
#include <string.h>

#define VARINT_BYTES 5
#define VARLONG_BYTES 10
#define NULL_LENGTH 1 /* The folded number of -1. */
#define NO_TIMESTAMP (-1)
#define LOG_APPEND_TIME 1
#define MICROSECONDS_PER_MILLISECOND 1000

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Reader;

typedef struct {
    const uint8_t *data; /* NULL where the value is null. */
    int64_t size_bytes;
} Bytes;

/* A folded number of up to `bits`; 0 where there is none. */
static inline int read_folded(Reader *reader, int max_bytes, int bits, uint64_t *folded) {
    uint64_t value = 0;
    for (int index = 0; index < max_bytes; index++) {
        if (reader->at == reader->end)
            return 0;
        uint64_t byte = *reader->at++;
        uint64_t group = byte & 0x7F;
        int shift = 7 * index;
        if (shift + 7 > bits && group >> (bits - shift))
            return 0;
        value |= group << shift;
        if (byte < 0x80) {
            *folded = value;
            return 1;
        }
    }
    return 0;
}

static inline int64_t unfold(uint64_t folded) {
    return (int64_t)(folded >> 1) ^ -(int64_t)(folded & 1);
}

static inline int read_bytes(Reader *reader, Bytes *bytes) {
    uint64_t folded;
    if (!read_folded(reader, VARINT_BYTES, 32, &folded))
        return 0;
    if (folded & 1) {
        bytes->data = NULL;
        bytes->size_bytes = 0;
        return folded == NULL_LENGTH;
    }
    bytes->size_bytes = (int64_t)(folded >> 1);
    if (bytes->size_bytes > reader->end - reader->at)
        return 0;
    bytes->data = reader->at;
    reader->at += bytes->size_bytes;
    return 1;
}

/* Counts a value, and writes it where there is a column; 0 where it has no room. */
static inline int put_bytes(
    const Bytes *bytes, BinaryColumn *column, int64_t row, int64_t *nulls, int64_t *size_bytes, int64_t room_bytes
) {
    if (column != NULL) {
        if (bytes->size_bytes > room_bytes - *size_bytes)
            return 0;
        if (bytes->size_bytes)
            memcpy(column->data + *size_bytes, bytes->data, (size_t)bytes->size_bytes);
        column->ends[row + 1] = (int32_t)(*size_bytes + bytes->size_bytes);
        if (bytes->data != NULL && column->validity != NULL)
            column->validity[row >> 3] |= (uint8_t)(1 << (row & 7));
    }
    *nulls += bytes->data == NULL;
    *size_bytes += bytes->size_bytes;
    return 1;
}

static inline int walk_headers(Reader *reader, int is_wanted, Totals *totals, Columns *columns, const Totals *room) {
    uint64_t count;
    if (!read_folded(reader, VARINT_BYTES, 32, &count) || count & 1)
        return 0;
    for (uint64_t left = count >> 1; left; left--) {
        Bytes key, value;
        int64_t key_nulls = 0;
        if (!read_bytes(reader, &key) || key.data == NULL || !read_bytes(reader, &value))
            return 0;
        if (!is_wanted)
            continue;
        if (columns != NULL && totals->headers >= room->headers)
            return 0;
        if (!put_bytes(&key, columns ? &columns->header_keys : NULL, totals->headers, &key_nulls,
                       &totals->header_key_bytes, columns ? room->header_key_bytes : 0))
            return 0;
        if (!put_bytes(&value, columns ? &columns->header_values : NULL, totals->headers, &totals->header_value_nulls,
                       &totals->header_value_bytes, columns ? room->header_value_bytes : 0))
            return 0;
        totals->headers++;
    }
    return 1;
}

/* A time in microseconds; 0 where there is none that 64 bits can hold. */
static inline int to_microseconds(int64_t timestamp, int64_t *microseconds) {
    *microseconds = 0;
    if (timestamp == NO_TIMESTAMP)
        return 0;
    if (__builtin_mul_overflow(timestamp, (int64_t)MICROSECONDS_PER_MILLISECOND, microseconds)) {
        *microseconds = 0;
        return 0;
    }
    return 1;
}

static inline void put_numbers(
    Columns *columns, int64_t row, int64_t offset, int64_t microseconds, int has_time, int64_t timestamp_type
) {
    columns->offsets[row] = offset;
    columns->timestamps[row] = microseconds;
    columns->timestamp_types[row] = (int32_t)timestamp_type;
    if (has_time && columns->timestamp_validity != NULL)
        columns->timestamp_validity[row >> 3] |= (uint8_t)(1 << (row & 7));
}

/* One record; 0 where it is not one. `columns` is NULL while measuring. */
static inline int walk_record(
    Reader *reader, const Batch *batch, const Bounds *bounds, int64_t *previous, Totals *totals, Columns *columns,
    const Totals *room
) {
    uint64_t size, timestamp_delta, offset_delta;
    if (!read_folded(reader, VARINT_BYTES, 32, &size) || size & 1)
        return 0;
    if ((int64_t)(size >> 1) > reader->end - reader->at)
        return 0;
    Reader record = {reader->at, reader->at + (size >> 1)};
    reader->at = record.end;
    if (record.at == record.end)
        return 0;
    record.at++; /* The record's attributes have no meaning yet. */
    if (!read_folded(&record, VARLONG_BYTES, 64, &timestamp_delta))
        return 0;
    if (!read_folded(&record, VARINT_BYTES, 32, &offset_delta) || offset_delta & 1)
        return 0;
    int64_t delta = (int64_t)(offset_delta >> 1);
    if (delta <= *previous || delta > batch->last_offset_delta)
        return 0;
    *previous = delta;
    Bytes key, value;
    if (!read_bytes(&record, &key) || !read_bytes(&record, &value))
        return 0;
    int64_t offset, timestamp = batch->max_timestamp;
    if (__builtin_add_overflow(batch->base_offset, delta, &offset))
        return 0;
    if (batch->timestamp_type != LOG_APPEND_TIME &&
        __builtin_add_overflow(batch->base_timestamp, unfold(timestamp_delta), &timestamp))
        return 0;
    int is_wanted = offset >= bounds->start_offset && offset < bounds->end_offset && timestamp >= bounds->start_ms &&
                    timestamp <= bounds->end_ms;
    int64_t row = totals->rows;
    if (is_wanted) {
        int64_t microseconds;
        int has_time = to_microseconds(timestamp, &microseconds);
        if (columns != NULL) {
            if (row >= room->rows)
                return 0;
            put_numbers(columns, row, offset, microseconds, has_time, batch->timestamp_type);
        }
        totals->null_timestamps += !has_time;
        totals->rows++;
        if (!put_bytes(&key, columns ? &columns->keys : NULL, row, &totals->key_nulls, &totals->key_bytes,
                       columns ? room->key_bytes : 0) ||
            !put_bytes(&value, columns ? &columns->values : NULL, row, &totals->value_nulls, &totals->value_bytes,
                       columns ? room->value_bytes : 0))
            return 0;
    }
    if (!walk_headers(&record, is_wanted, totals, columns, room) || record.at != record.end)
        return 0;
    if (is_wanted && columns != NULL)
        columns->header_ends[row + 1] = (int32_t)totals->headers;
    return 1;
}

/* -1, or the number of the first batch that is damaged. */
static inline int64_t walk(
    const Batch *batches, int64_t batch_count, const Bounds *bounds, Totals *totals, Columns *columns, const Totals *room
) {
    for (int64_t number = 0; number < batch_count; number++) {
        const Batch *batch = &batches[number];
        Reader reader = {batch->records, batch->records + batch->size_bytes};
        int64_t previous = -1;
        if (batch->record_count < 0)
            return number;
        for (int64_t left = batch->record_count; left; left--)
            if (!walk_record(&reader, batch, bounds, &previous, totals, columns, room))
                return number;
        if (reader.at != reader.end)
            return number;
    }
    return -1;
}

int64_t quorate_measure(const Batch *batches, int64_t batch_count, const Bounds *bounds, Totals *totals) {
    *totals = (Totals){0};
    return walk(batches, batch_count, bounds, totals, NULL, NULL);
}

int64_t quorate_fill(
    const Batch *batches, int64_t batch_count, const Bounds *bounds, const Totals *room, Columns *columns
) {
    Totals totals = {0};
    int64_t damaged = walk(batches, batch_count, bounds, &totals, columns, room);
    return damaged < 0 && memcmp(&totals, room, sizeof totals) ? batch_count : damaged;
}
