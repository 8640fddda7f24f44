/* scan_records(payloads, bounds, allocate, /): see Scan in records/columnar.py, whose tuples are read and filled here.
 *
 * Python allocates all memory, between the two walks; each piece of it is checked before the second one. */

#include "native.h"

#include "columns_core.h"

#define BOUNDS 4
#define TOTALS (sizeof(Totals) / sizeof(int64_t))
#define COLUMN_BUFFERS (5 + 4 * 3) /* Of RecordColumns, and of each BinaryColumn in it. */
#define APPEND_TIME_BIT 0x08

/* Fields of BatchHeader, RecordColumns and BinaryColumn. */
enum { BASE_OFFSET = 0, ATTRIBUTES = 5, LAST_OFFSET_DELTA = 6, BASE_TIMESTAMP = 7, MAX_TIMESTAMP = 8, RECORD_COUNT = 12 };
enum {
    OFFSETS = 1,
    TIMESTAMPS,
    TIMESTAMP_VALIDITY,
    TIMESTAMP_TYPES,
    KEYS = 6,
    VALUES,
    HEADER_ENDS,
    HEADER_KEYS = 10,
    HEADER_VALUES
};
enum { VALIDITY, ENDS, DATA };

/* Buffers that are to be given back. */
typedef struct {
    Py_buffer *views;
    Py_ssize_t count;
} Held;

typedef struct {
    Batch *batches;
    Py_ssize_t count;
    int64_t size_bytes;
    Bounds bounds;
    Held held;
} Payloads;

static void release(Held *held) {
    while (held->count)
        PyBuffer_Release(&held->views[--held->count]);
}

/* An integer of a tuple; -1 with an error set where there is none. */
static int64_t number(PyObject *tuple, Py_ssize_t index) {
    PyObject *item = PyTuple_GetItem(tuple, index);
    return item ? PyLong_AsLongLong(item) : -1;
}

static int read_payload(PyObject *payload, Payloads *payloads) {
    PyObject *header = PyTuple_Check(payload) ? PyTuple_GetItem(payload, 0) : NULL;
    PyObject *data = header ? PyTuple_GetItem(payload, 1) : NULL;
    if (data == NULL || !PyTuple_Check(header)) {
        PyErr_SetString(PyExc_TypeError, "a payload is a header and its records");
        return 0;
    }
    Batch *batch = &payloads->batches[payloads->count];
    batch->base_offset = number(header, BASE_OFFSET);
    batch->base_timestamp = number(header, BASE_TIMESTAMP);
    batch->max_timestamp = number(header, MAX_TIMESTAMP);
    batch->last_offset_delta = number(header, LAST_OFFSET_DELTA);
    batch->record_count = number(header, RECORD_COUNT);
    batch->timestamp_type = (number(header, ATTRIBUTES) & APPEND_TIME_BIT) != 0;
    Py_buffer *view = &payloads->held.views[payloads->held.count];
    if (PyErr_Occurred() || PyObject_GetBuffer(data, view, PyBUF_SIMPLE) < 0)
        return 0;
    payloads->held.count++;
    payloads->count++;
    batch->records = view->buf;
    batch->size_bytes = view->len;
    payloads->size_bytes += view->len;
    return 1;
}

static int read_payloads(PyObject *sequence, Payloads *payloads) {
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0)
        return 0;
    payloads->batches = PyMem_Calloc((size_t)count, sizeof(Batch));
    payloads->held.views = PyMem_Calloc((size_t)count, sizeof(Py_buffer));
    if (payloads->batches == NULL || payloads->held.views == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *payload = PySequence_GetItem(sequence, index);
        int is_read = payload != NULL && read_payload(payload, payloads);
        Py_XDECREF(payload);
        if (!is_read)
            return 0;
    }
    return 1;
}

static int read_bounds(PyObject *tuple, Bounds *bounds) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != BOUNDS) {
        PyErr_SetString(PyExc_TypeError, "the bounds are four integers");
        return 0;
    }
    *bounds = (Bounds){number(tuple, 0), number(tuple, 1), number(tuple, 2), number(tuple, 3)};
    return !PyErr_Occurred();
}

/* The address of writable memory that is at least as large and has an element's alignment; 0 with an error set. */
static int take(Held *held, PyObject *object, int64_t count, size_t element_bytes, void *address) {
    Py_buffer *view = &held->views[held->count];
    if (object == NULL || PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0)
        return 0;
    held->count++;
    int is_aligned = !count || (uintptr_t)view->buf % element_bytes == 0;
    if (view->len / (Py_ssize_t)element_bytes < count || !is_aligned) {
        PyErr_SetString(PyExc_ValueError, "the memory of a column is too small, or not aligned");
        return 0;
    }
    memcpy(address, &view->buf, sizeof view->buf);
    return 1;
}

/* The same for a bit for each row; None will do where nothing is null. */
static int take_bits(Held *held, PyObject *object, int64_t rows, int64_t nulls, uint8_t **address) {
    *address = NULL;
    if (object == Py_None && !nulls)
        return 1;
    return take(held, object, (rows + 7) / 8, 1, address);
}

static int take_binary(
    Held *held, PyObject *column, int64_t rows, int64_t nulls, int64_t size_bytes, BinaryColumn *binary
) {
    if (column == NULL || !PyTuple_Check(column)) {
        PyErr_SetString(PyExc_TypeError, "a column of bytes is a tuple");
        return 0;
    }
    return take_bits(held, PyTuple_GetItem(column, VALIDITY), rows, nulls, &binary->validity) &&
           take(held, PyTuple_GetItem(column, ENDS), rows + 1, sizeof(int32_t), &binary->ends) &&
           take(held, PyTuple_GetItem(column, DATA), size_bytes, 1, &binary->data);
}

static int take_columns(Held *held, PyObject *memory, const Totals *room, Columns *columns) {
    if (!PyTuple_Check(memory)) {
        PyErr_SetString(PyExc_TypeError, "the columns are a tuple");
        return 0;
    }
    return take(held, PyTuple_GetItem(memory, OFFSETS), room->rows, sizeof(int64_t), &columns->offsets) &&
           take(held, PyTuple_GetItem(memory, TIMESTAMPS), room->rows, sizeof(int64_t), &columns->timestamps) &&
           take_bits(held, PyTuple_GetItem(memory, TIMESTAMP_VALIDITY), room->rows, room->null_timestamps,
                     &columns->timestamp_validity) &&
           take(held, PyTuple_GetItem(memory, TIMESTAMP_TYPES), room->rows, sizeof(int32_t),
                &columns->timestamp_types) &&
           take_binary(held, PyTuple_GetItem(memory, KEYS), room->rows, room->key_nulls, room->key_bytes,
                       &columns->keys) &&
           take_binary(held, PyTuple_GetItem(memory, VALUES), room->rows, room->value_nulls, room->value_bytes,
                       &columns->values) &&
           take(held, PyTuple_GetItem(memory, HEADER_ENDS), room->rows + 1, sizeof(int32_t), &columns->header_ends) &&
           take_binary(held, PyTuple_GetItem(memory, HEADER_KEYS), room->headers, 0, room->header_key_bytes,
                       &columns->header_keys) &&
           take_binary(held, PyTuple_GetItem(memory, HEADER_VALUES), room->headers, room->header_value_nulls,
                       room->header_value_bytes, &columns->header_values);
}

/* One walk: it measures where there are no columns. */
static int64_t walk(const Payloads *payloads, Totals *totals, Columns *columns) {
    int64_t damaged;
    PyThreadState *thread = payloads->size_bytes >= QUORATE_GIL_FREE_BYTES ? PyEval_SaveThread() : NULL;
    if (columns == NULL)
        damaged = quorate_measure(payloads->batches, payloads->count, &payloads->bounds, totals);
    else
        damaged = quorate_fill(payloads->batches, payloads->count, &payloads->bounds, totals, columns);
    if (thread != NULL)
        PyEval_RestoreThread(thread);
    return damaged;
}

static PyObject *allocated(PyObject *allocate, const Totals *totals) {
    const int64_t *found = (const int64_t *)totals;
    PyObject *numbers = PyTuple_New(TOTALS);
    for (size_t index = 0; numbers != NULL && index < TOTALS; index++) {
        PyObject *each = PyLong_FromLongLong(found[index]);
        if (each == NULL || PyTuple_SetItem(numbers, (Py_ssize_t)index, each) < 0)
            Py_CLEAR(numbers);
    }
    PyObject *memory = numbers ? PyObject_CallObject(allocate, numbers) : NULL;
    Py_XDECREF(numbers);
    return memory;
}

static PyObject *filled(const Payloads *payloads, Totals *totals, PyObject *allocate) {
    Py_buffer views[COLUMN_BUFFERS];
    Held held = {views, 0};
    Columns columns;
    PyObject *memory = allocated(allocate, totals);
    if (memory == NULL)
        return NULL;
    if (!take_columns(&held, memory, totals, &columns)) {
        Py_CLEAR(memory);
    } else if (walk(payloads, totals, &columns) >= 0) {
        PyErr_SetString(PyExc_RuntimeError, "records were changed while they were read");
        Py_CLEAR(memory);
    }
    release(&held);
    return memory;
}

static PyObject *scan_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "scan_records takes 3 arguments, not %zd", count);
        return NULL;
    }
    Payloads payloads = {0};
    PyObject *result = NULL;
    if (read_bounds(arguments[1], &payloads.bounds) && read_payloads(arguments[0], &payloads)) {
        Totals totals;
        int64_t damaged = walk(&payloads, &totals, NULL);
        result = damaged < 0 ? filled(&payloads, &totals, arguments[2]) : PyLong_FromLongLong(damaged);
    }
    release(&payloads.held);
    PyMem_Free(payloads.held.views);
    PyMem_Free(payloads.batches);
    return result;
}

PyMethodDef quorate_columns_methods[] = {
    {"scan_records", (PyCFunction)(void (*)(void))scan_records, METH_FASTCALL,
     "scan_records(payloads, bounds, allocate, /)\n--\n\n"
     "What allocate gave, filled with the records, or the index of the first payload that is damaged."},
    {NULL, NULL, 0, NULL},
};
