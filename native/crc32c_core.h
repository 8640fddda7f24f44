/* CRC-32C, by the processor's own instructions where it has them. Knows nothing of Python. */

#ifndef QUORATE_CRC32C_CORE_H
#define QUORATE_CRC32C_CORE_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `data` behind bytes whose checksum is `crc`: 0 where there are none. */
uint32_t quorate_crc32c(uint32_t crc, const uint8_t *data, size_t size);

/* The same without the processor's instructions. */
uint32_t quorate_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t size);

#endif
