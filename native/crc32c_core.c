/* CRC-32C (Castagnoli), as Kafka's record batches have it.
 *
 * The instruction of x86-64 (SSE4.2) and of arm64 (CRC32) takes eight bytes at a time and has its result three cycles
 * later, but a new one can start in every cycle. So large pieces are read as three streams in turn. The register of a
 * stream is a polynomial over GF(2), bit 31 being the coefficient of x^0; to put two streams together, that of the first
 * is multiplied by x^(8n), n being the bytes of the second, with a look into four tables for each of its bytes. */

#include "crc32c_core.h"

#include <string.h>

#define POLYNOMIAL 0x82F63B78u
#define X_TO_THE_8 (1u << (31 - 8))
#define LENGTHS 3

typedef uint32_t Tables[4][256];

static uint32_t by_byte[8][256]; /* [n][v]: the register of byte v followed by n zero bytes. */
static Tables over[LENGTHS];

/* Of one stream, the longest that fits being used: powers of two. What is not in the processor's cache is read ahead
 * the better the longer it is. */
static const size_t STREAM_BYTES[LENGTHS] = {32 * 1024, 4 * 1024, 256};

#if defined(__x86_64__)

#include <nmmintrin.h>
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define STEP_8_BYTES(crc, word) _mm_crc32_u64(crc, word)
#define STEP_BYTE(crc, byte) _mm_crc32_u8((uint32_t)(crc), byte)

static int has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}

#elif defined(__aarch64__) && (defined(__ARM_FEATURE_CRC32) || defined(__linux__))

#if defined(__clang__) /* Whose arm_acle.h has them only where the whole file may use them. */
#define WITH_INSTRUCTION __attribute__((target("crc")))
#define STEP_8_BYTES(crc, word) __builtin_arm_crc32cd((uint32_t)(crc), word)
#define STEP_BYTE(crc, byte) __builtin_arm_crc32cb((uint32_t)(crc), byte)
#else
#include <arm_acle.h>
#define WITH_INSTRUCTION __attribute__((target("+crc")))
#define STEP_8_BYTES(crc, word) __crc32cd((uint32_t)(crc), word)
#define STEP_BYTE(crc, byte) __crc32cb((uint32_t)(crc), byte)
#endif

#if defined(__ARM_FEATURE_CRC32)
static int has_instruction(void) {
    return 1;
}
#else
#include <sys/auxv.h>
#define HAS_CRC32 (1ul << 7) /* Of AT_HWCAP. */

static int has_instruction(void) {
    return (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
}
#endif

#endif

static uint32_t multiplied_by_x(uint32_t a) {
    return a & 1 ? a >> 1 ^ POLYNOMIAL : a >> 1;
}

static uint32_t product(uint32_t a, uint32_t b) {
    uint32_t sum = 0;
    for (int bit = 31; bit >= 0; bit--) {
        if (a >> bit & 1)
            sum ^= b;
        b = multiplied_by_x(b);
    }
    return sum;
}

/* The product is linear, so that those of single bits are enough to find all. */
static void fill_shift(Tables tables, size_t size) {
    uint32_t power = X_TO_THE_8;
    for (size_t bytes = 1; bytes < size; bytes *= 2)
        power = product(power, power);
    for (int place = 0; place < 4; place++) {
        tables[place][0] = 0;
        for (uint32_t bit = 0; bit < 8; bit++) {
            uint32_t of_bit = product(power, 1u << (8 * place + bit));
            for (uint32_t rest = 0; rest < 1u << bit; rest++)
                tables[place][(1u << bit) + rest] = of_bit ^ tables[place][rest];
        }
    }
}

static void fill_bytes(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = multiplied_by_x(crc);
        by_byte[0][byte] = crc;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = by_byte[zeros - 1][byte];
            by_byte[zeros][byte] = before >> 8 ^ by_byte[0][before & 0xFF];
        }
}

static int uses_instruction;

/* When the library is loaded: before anybody can ask, and by one thread. */
__attribute__((constructor)) static void prepare(void) {
    fill_bytes();
    for (int length = 0; length < LENGTHS; length++)
        fill_shift(over[length], STREAM_BYTES[length]);
#ifdef WITH_INSTRUCTION
    uses_instruction = has_instruction();
#endif
}

static inline uint64_t eight_bytes(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint32_t register_by_table(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word = eight_bytes(data) ^ crc;
        crc = 0;
        for (int place = 0; place < 8; place++)
            crc ^= by_byte[7 - place][word >> (8 * place) & 0xFF];
    }
    for (; size; size--, data++)
        crc = crc >> 8 ^ by_byte[0][(crc ^ *data) & 0xFF];
    return crc;
}

#ifdef WITH_INSTRUCTION

static inline uint32_t shifted(const Tables tables, uint32_t crc) {
    return tables[0][crc & 0xFF] ^ tables[1][crc >> 8 & 0xFF] ^ tables[2][crc >> 16 & 0xFF] ^ tables[3][crc >> 24];
}

WITH_INSTRUCTION static inline uint32_t three_streams(
    uint64_t first, const uint8_t *data, size_t size, const Tables tables
) {
    uint64_t second = 0, third = 0;
    for (const uint8_t *end = data + size; data != end; data += 8) {
        first = STEP_8_BYTES(first, eight_bytes(data));
        second = STEP_8_BYTES(second, eight_bytes(data + size));
        third = STEP_8_BYTES(third, eight_bytes(data + 2 * size));
    }
    uint32_t both = shifted(tables, (uint32_t)first) ^ (uint32_t)second;
    return shifted(tables, both) ^ (uint32_t)third;
}

WITH_INSTRUCTION static uint32_t register_by_instruction(uint32_t start, const uint8_t *data, size_t size) {
    uint64_t crc = start;
    for (int length = 0; length < LENGTHS; length++) {
        size_t stream = STREAM_BYTES[length];
        for (; size >= 3 * stream; size -= 3 * stream, data += 3 * stream)
            crc = three_streams(crc, data, stream, over[length]);
    }
    for (; size >= 8; size -= 8, data += 8)
        crc = STEP_8_BYTES(crc, eight_bytes(data));
    for (; size; size--, data++)
        crc = STEP_BYTE(crc, *data);
    return (uint32_t)crc;
}

#endif

uint32_t quorate_crc32c(uint32_t crc, const uint8_t *data, size_t size) {
#ifdef WITH_INSTRUCTION
    if (uses_instruction)
        return ~register_by_instruction(~crc, data, size);
#endif
    return ~register_by_table(~crc, data, size);
}

uint32_t quorate_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t size) {
    return ~register_by_table(~crc, data, size);
}
