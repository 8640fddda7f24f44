/* What a target of the fuzz is: one file beside this one that defines `fuzz_one`, and seeds of its name in corpus.py. */

#ifndef QUORATE_FUZZ_H
#define QUORATE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Gives one hostile input, in memory of exactly its size, to the functions under test: 1 where they took it, 0 where they
 * refused it. The sanitizers see to the memory; what else must hold is a CHECK. */
int fuzz_one(const uint8_t *data, size_t size);

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            fuzz_failed(__FILE__, __LINE__, #condition); \
    } while (0)

_Noreturn void fuzz_failed(const char *file, int line, const char *condition);

/* Memory of exactly that size, so that a byte read or written beside it is found. Never NULL; free() it. */
void *fuzz_memory(size_t size);
void *fuzz_copy(const void *data, size_t size);

/* The big-endian number of so many bytes, as it stands on the wire; signed where it has 8. */
int64_t fuzz_number(const uint8_t *data, int bytes);

#endif
