/* encode_produced(...) and encode_fetched(...): the answers that nearly all Produce and Fetch requests get.
 *
 * The twin is quorate.protocol.frames.encode_response: None leaves the answer to it, and so what is wrong with it. */

#include "answers_core.h"
#include "native.h"

/* Whether the number is one of so many bits; false also where it is no number, and then with an error. */
static bool number_of(PyObject *object, int bits, int64_t *number) {
    long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred())
        return false;
    *number = value;
    return bits == 64 || (value >= -(1LL << (bits - 1)) && value < 1LL << (bits - 1));
}

static bool numbers_of(PyObject *const *objects, const char *bits, int64_t *numbers) {
    for (size_t index = 0; bits[index]; index++)
        if (!number_of(objects[index], bits[index] == 'i' ? 32 : 64, numbers + index))
            return false;
    return true;
}

/* Its memory is the object's. */
static bool topic_of(PyObject *object, quorate_answer_start *start) {
    Py_ssize_t size;
    const char *text;
    if (PyUnicode_Check(object)) {
        text = PyUnicode_AsUTF8AndSize(object, &size);
    } else {
        char *bytes;
        text = PyBytes_AsStringAndSize(object, &bytes, &size) < 0 ? NULL : bytes;
    }
    start->topic = (const uint8_t *)text;
    start->topic_size = text == NULL ? 0 : (size_t)size;
    return text != NULL;
}

/* Correlation id, version, topic, throttle time, partition: the first arguments of both. */
static bool start_of(PyObject *const *arguments, quorate_answer_start *start) {
    int64_t numbers[4];
    PyObject *const objects[] = {arguments[0], arguments[1], arguments[3], arguments[4]};
    if (!numbers_of(objects, "iiii", numbers) || !topic_of(arguments[2], start))
        return false;
    start->correlation_id = (int32_t)numbers[0];
    start->api_version = (int)numbers[1];
    start->throttle_time_ms = (int32_t)numbers[2];
    start->partition = (int32_t)numbers[3];
    return true;
}

/* The twin says what is wrong with it. */
static PyObject *odd(void) {
    PyErr_Clear();
    Py_RETURN_NONE;
}

static bool takes(const char *name, Py_ssize_t wanted, Py_ssize_t count) {
    if (count == wanted)
        return true;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, count);
    return false;
}

static PyObject *encode_produced(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    quorate_answer_start start;
    int64_t numbers[3];
    uint8_t out[QUORATE_MOST_ANSWER_BYTES];
    if (!takes("encode_produced", 8, count))
        return NULL;
    if (!start_of(arguments, &start) || !numbers_of(arguments + 5, "qqq", numbers))
        return odd();
    quorate_produced_answer answer = {numbers[0], numbers[1], numbers[2]};
    size_t size = quorate_write_produced(&start, &answer, out);
    return size ? PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)size) : odd();
}

static PyObject *encode_fetched(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    quorate_answer_start start;
    int64_t numbers[5];
    uint8_t out[QUORATE_MOST_ANSWER_BYTES];
    size_t tail_size;
    if (!takes("encode_fetched", 11, count))
        return NULL;
    int has_aborted = PyObject_IsTrue(arguments[10]);
    if (has_aborted < 0 || !start_of(arguments, &start) || !numbers_of(arguments + 5, "iqqqi", numbers) ||
        numbers[4] < 0)
        return odd();
    quorate_fetched_answer answer = {
        (int32_t)numbers[0], numbers[1], numbers[2], numbers[3], has_aborted, (uint32_t)numbers[4],
    };
    size_t size = quorate_write_fetched(&start, &answer, out, &tail_size);
    return size ? PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)size) : odd();
}

PyMethodDef quorate_answers_methods[] = {
    {"encode_produced", (PyCFunction)(void (*)(void))encode_produced, METH_FASTCALL,
     "encode_produced(correlation_id, version, topic, throttle_time_ms, partition, base_offset, log_append_time_ms, "
     "log_start_offset, /)\n--\n\nThe whole answer to a Produce request that wrote one batch, or None."},
    {"encode_fetched", (PyCFunction)(void (*)(void))encode_fetched, METH_FASTCALL,
     "encode_fetched(correlation_id, version, topic, throttle_time_ms, partition, session_id, high_watermark, "
     "last_stable_offset, log_start_offset, records_size, has_aborted_transactions, /)\n--\n\n"
     "The answer to a Fetch request for one partition up to its records, or None."},
    {NULL, NULL, 0, NULL},
};
