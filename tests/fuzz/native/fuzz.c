/* fuzz <seed> <first> <count> <corpus>: changes the inputs of the corpus and gives them to `fuzz_one`.
 *
 * The input with an index is the same whenever it is made with the same seed and corpus. At the end the number of inputs
 * that were taken is printed; a failure says which index it was. */

#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define MOST_BYTES (64 * 1024)
#define MOST_CHANGES 6
#define WATCHED_INPUTS 4096
#define WATCHED_S 60 /* Of the processor, for so many inputs: one that takes for ever is a failure, too. */

void __sanitizer_set_death_callback(void (*callback)(void));

typedef struct {
    const uint8_t *data;
    uint32_t size;
} Input;

typedef struct {
    Input *inputs;
    size_t count;
} Corpus;

static uint64_t seed, current, state;

static const uint64_t EDGES[] = {
    0, 1, 2, 3, 0x3F, 0x40, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE,
    0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFE, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFE,
    0xFFFFFFFFFFFFFFFF,
};
static const char REPORT[] = "\nfuzz: it was the input with index ";

/* Signals and sanitizers call it: nothing but write(). */
static void say_which(void) {
    char text[sizeof REPORT + 24];
    memcpy(text, REPORT, sizeof REPORT - 1);
    size_t at = sizeof text;
    text[--at] = '\n';
    uint64_t rest = current;
    do
        text[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    memmove(text + sizeof REPORT - 1, text + at, sizeof text - at);
    if (write(STDERR_FILENO, text, sizeof REPORT - 1 + sizeof text - at) < 0)
        _exit(4);
}

/* One that takes for ever (SIGVTALRM), or undefined behaviour (SIGABRT). */
static void fail_by_signal(int signal_number) {
    say_which();
    _exit(signal_number);
}

void fuzz_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    say_which();
    _exit(2);
}

static void *or_fail(void *memory) {
    if (memory == NULL)
        fuzz_failed(__FILE__, __LINE__, "there is memory");
    return memory;
}

void *fuzz_memory(size_t size) {
    return or_fail(calloc(1, size));
}

void *fuzz_copy(const void *data, size_t size) {
    void *copy = or_fail(malloc(size));
    if (size)
        memcpy(copy, data, size);
    return copy;
}

int64_t fuzz_number(const uint8_t *data, int bytes) {
    uint64_t number = 0;
    for (int index = 0; index < bytes; index++)
        number = number << 8 | data[index];
    return (int64_t)number;
}

/* SplitMix64. */
static uint64_t random_number(void) {
    uint64_t mixed = state += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    return mixed ^ mixed >> 31;
}

static size_t below(size_t limit) {
    return limit ? (size_t)(random_number() % limit) : 0;
}

static uint64_t edge(size_t size) {
    switch (below(4)) {
    case 0:
        return size + below(17) - 8;
    case 1:
        return below(64);
    default:
        return EDGES[below(sizeof EDGES / sizeof *EDGES)];
    }
}

static void write_number(uint8_t *data, size_t size) {
    size_t bytes = (size_t)1 << below(4), at = below(size);
    uint64_t number = edge(size);
    for (size_t index = 0; index < bytes && at + index < size; index++)
        data[at + index] = (uint8_t)(number >> 8 * (bytes - 1 - index));
}

static void write_varint(uint8_t *data, size_t size) {
    size_t at = below(size);
    uint64_t number = edge(size);
    for (; at < size; at++, number >>= 7) {
        data[at] = (uint8_t)(number & 0x7F) | (number > 0x7F ? 0x80 : 0);
        if (number <= 0x7F)
            break;
    }
}

static size_t removed(uint8_t *data, size_t size) {
    size_t at = below(size), count = 1 + below(below(4) ? 8 : size);
    count = count < size - at ? count : size - at;
    memmove(data + at, data + at + count, size - at - count);
    return size - count;
}

/* A piece of some input of the corpus, put between. */
static size_t inserted(uint8_t *data, size_t size, const Corpus *corpus) {
    const Input *other = &corpus->inputs[below(corpus->count)];
    size_t from = below(other->size), count = 1 + below(below(4) ? 8 : other->size), at = below(size + 1);
    count = count < other->size - from ? count : other->size - from;
    count = count < MOST_BYTES - size ? count : MOST_BYTES - size;
    memmove(data + at + count, data + at, size - at);
    memcpy(data + at, other->data + from, count);
    return size + count;
}

static size_t changed(uint8_t *data, size_t size, const Corpus *corpus) {
    if (size == 0)
        return inserted(data, size, corpus);
    switch (below(8)) {
    case 0:
        data[below(size)] ^= (uint8_t)(1 << below(8));
        return size;
    case 1:
    case 2:
        data[below(size)] = (uint8_t)random_number();
        return size;
    case 3:
        write_number(data, size);
        return size;
    case 4:
    case 5:
        write_varint(data, size);
        return size;
    case 6:
        return below(3) ? removed(data, size) : below(size);
    default:
        return inserted(data, size, corpus);
    }
}

static int tried(uint64_t index, const Corpus *corpus, uint8_t *space) {
    current = index;
    state = seed * 0xD1342543DE82EF95 + index;
    const Input *chosen = &corpus->inputs[below(corpus->count)];
    size_t size = chosen->size;
    memcpy(space, chosen->data, size);
    for (size_t left = below(MOST_CHANGES + 1); left; left--)
        size = changed(space, size, corpus);
    uint8_t *exact = fuzz_copy(space, size);
    int taken = fuzz_one(exact, size);
    free(exact);
    return taken;
}

static void read_corpus(const char *path, Corpus *corpus) {
    FILE *file = or_fail(fopen(path, "rb"));
    uint8_t head[4];
    while (fread(head, 1, sizeof head, file) == sizeof head) {
        uint32_t size = (uint32_t)fuzz_number(head, 4);
        uint8_t *data = or_fail(malloc(size + 1));
        if (size > MOST_BYTES || fread(data, 1, size, file) != size)
            fuzz_failed(path, 0, "the corpus is whole");
        corpus->inputs = or_fail(realloc(corpus->inputs, (corpus->count + 1) * sizeof(Input)));
        corpus->inputs[corpus->count++] = (Input){data, size};
    }
    fclose(file);
}

int main(int count, char **arguments) {
    Corpus corpus = {0};
    if (count != 5)
        fuzz_failed(__FILE__, __LINE__, "there are four arguments");
    seed = strtoull(arguments[1], NULL, 10);
    uint64_t first = strtoull(arguments[2], NULL, 10), inputs = strtoull(arguments[3], NULL, 10), taken = 0;
    read_corpus(arguments[4], &corpus);
    uint8_t *space = or_fail(malloc(MOST_BYTES));
    __sanitizer_set_death_callback(say_which);
    signal(SIGVTALRM, fail_by_signal);
    signal(SIGABRT, fail_by_signal);
    for (uint64_t index = first; index < first + inputs; index++) {
        if ((index - first) % WATCHED_INPUTS == 0)
            setitimer(ITIMER_VIRTUAL, &(struct itimerval){.it_value = {.tv_sec = WATCHED_S}}, NULL);
        taken += (uint64_t)tried(index, &corpus, space);
    }
    printf("%llu\n", (unsigned long long)taken);
    for (size_t index = 0; index < corpus.count; index++)
        free((void *)corpus.inputs[index].data);
    free(corpus.inputs);
    free(space);
    return 0;
}
