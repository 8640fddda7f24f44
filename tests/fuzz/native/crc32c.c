/* The checksum by the processor's instruction is that by the table, however the bytes are cut. */

#include "fuzz.h"

#include "crc32c_core.h"

int fuzz_one(const uint8_t *data, size_t size) {
    uint32_t before = size >= 4 ? (uint32_t)fuzz_number(data, 4) : 0;
    size_t cut = size >= 8 ? (size_t)fuzz_number(data + 4, 4) % size : 0;
    uint32_t crc = quorate_crc32c(before, data, size);
    CHECK(crc == quorate_crc32c_by_table(before, data, size));
    CHECK(crc == quorate_crc32c(quorate_crc32c(before, data, cut), data + cut, size - cut));
    return 1;
}
