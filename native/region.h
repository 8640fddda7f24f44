/* Bytes in which batches lie back to back. */

#ifndef QUORATE_REGION_H
#define QUORATE_REGION_H

#include <stdint.h>

typedef struct {
    const uint8_t *data;
    int64_t size_bytes;
} Region;

#endif
