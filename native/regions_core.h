/* Walks over a region: record batches of magic 2, back to back, as a Fetch answer has them. Pure; knows no Python.
 *
 * Whatever the bytes are, nothing outside of them is read. What is odd is not judged here: the Python twin, which is
 * asked then, knows the old formats and has the words for damage. */

#ifndef QUORATE_REGIONS_CORE_H
#define QUORATE_REGIONS_CORE_H

#include <stdint.h>

#include "region.h"

/* The batches of a region that belong to a range of offsets. */
typedef struct {
    int64_t start; /* Their bytes. */
    int64_t end;
    int64_t batch_count;
    int64_t last_offset;        /* Of the last of them, as the epoch; -1 where there is none. */
    int64_t leader_epoch;
    int64_t region_last_offset; /* Of the last whole batch, whether it belongs to the range or not. */
    int64_t outside_offset;     /* The lowest base offset behind them; -1 where there is none. */
} RegionCut;

typedef struct {
    int64_t start_offset;
    int64_t end_offset;
    int include_batch_across_end;
} CutRange;

/* What neighbours must be like to follow each other without anything else happening in between. */
typedef struct {
    int64_t position;
    int64_t room_bytes;
    int64_t next_offset; /* None of them begins before it. */
    int64_t end_offset;  /* All of them begin before it ... */
    int ends_before;     /* ... and, where this is set, end before it, too. */
    int64_t leader_epoch;
    int is_compressed;
} StretchRules;

typedef struct {
    int64_t batch_count;
    int64_t size_bytes;
    int64_t last_offset;
    int64_t record_count;
    int64_t control_record_count;
    int64_t min_timestamp;
    int64_t max_timestamp;
    int64_t largest_batch_bytes;
    int is_plain;
} Stretch;

/* 0 where the twin has to be asked: no whole batch, another format, or damage. */
int quorate_cut_region(const Region *region, const CutRange *range, RegionCut *cut);

/* Whether these are whole batches and nothing else, and every CRC is right. */
int quorate_check_region(const Region *region);

/* The batches from a position on that keep to the rules; maybe none. */
void quorate_follow(const Region *region, const StretchRules *rules, Stretch *stretch);

#endif
