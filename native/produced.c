/* read_request(frame) and read_produced_header(batch, ...): what each Produce and Fetch request begins with.
 *
 * Their twins are the decoders of quorate.protocol and quorate.records.validation: None leaves the bytes to them. */

#include "native.h"
#include "produced_core.h"

static PyObject *none(void) {
    return Py_NewRef(Py_None);
}

static PyObject *text_of(const uint8_t *frame, quorate_span span) {
    return span.is_null ? none() : PyUnicode_DecodeUTF8((const char *)frame + span.start, (Py_ssize_t)span.size, NULL);
}

/* Its name, a str, or its id, bytes. */
static PyObject *topic_of(const uint8_t *frame, quorate_span name, size_t topic_id_position) {
    return name.is_null ? PyBytes_FromStringAndSize((const char *)frame + topic_id_position, 16) : text_of(frame, name);
}

/* What was made before the first that could not be made is dropped. */
static bool were_made(PyObject *const *objects, size_t count) {
    if (objects[count - 1] != NULL)
        return true;
    for (size_t index = 0; index < count; index++)
        Py_XDECREF(objects[index]);
    return false;
}

static PyObject *produce_tuple(const uint8_t *frame, const quorate_request_start *start,
                               const quorate_produce_request *request) {
    PyObject *client_id = text_of(frame, start->client_id);
    PyObject *transactional_id = client_id == NULL ? NULL : text_of(frame, request->transactional_id);
    PyObject *topic =
        transactional_id == NULL ? NULL : topic_of(frame, request->topic, request->topic_id_position);
    if (!were_made((PyObject *[]){client_id, transactional_id, topic}, 3))
        return NULL;
    Py_ssize_t records_end = (Py_ssize_t)(request->records.start + request->records.size);
    return Py_BuildValue("(iiiNnNiiNinn)", (int)start->api_key, (int)start->api_version, (int)start->correlation_id,
                         client_id, (Py_ssize_t)start->body_position, transactional_id, (int)request->acks,
                         (int)request->timeout_ms, topic, (int)request->index, (Py_ssize_t)request->records.start,
                         request->records.is_null ? (Py_ssize_t)-1 : records_end);
}

static PyObject *partition_tuple(const uint8_t *frame, const quorate_fetch_request *request) {
    if (!request->has_partition)
        return none();
    PyObject *topic = topic_of(frame, request->topic, request->topic_id_position);
    if (topic == NULL)
        return NULL;
    return Py_BuildValue("(NiiLiLi)", topic, (int)request->partition, (int)request->current_leader_epoch,
                         (long long)request->fetch_offset, (int)request->last_fetched_epoch,
                         (long long)request->log_start_offset, (int)request->partition_max_bytes);
}

static PyObject *fetch_tuple(const uint8_t *frame, const quorate_request_start *start,
                             const quorate_fetch_request *request) {
    PyObject *client_id = text_of(frame, start->client_id);
    PyObject *rack_id = client_id == NULL ? NULL : text_of(frame, request->rack_id);
    PyObject *partition = rack_id == NULL ? NULL : partition_tuple(frame, request);
    if (!were_made((PyObject *[]){client_id, rack_id, partition}, 3))
        return NULL;
    return Py_BuildValue("(iiiNniiiiiiiNN)", (int)start->api_key, (int)start->api_version, (int)start->correlation_id,
                         client_id, (Py_ssize_t)start->body_position, (int)request->replica_id,
                         (int)request->max_wait_ms, (int)request->min_bytes, (int)request->max_bytes,
                         (int)request->isolation_level, (int)request->session_id, (int)request->session_epoch,
                         partition, rack_id);
}

static PyObject *read_request_of(const uint8_t *frame, size_t size) {
    quorate_request_start start;
    if (!quorate_read_start(frame, size, &start))
        return none();
    if (start.api_key == QUORATE_PRODUCE) {
        quorate_produce_request request;
        return quorate_read_produce(frame, size, &start, &request) ? produce_tuple(frame, &start, &request) : none();
    }
    quorate_fetch_request request;
    return quorate_read_fetch(frame, size, &start, &request) ? fetch_tuple(frame, &start, &request) : none();
}

static PyObject *read_request(PyObject *module, PyObject *argument) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *found = read_request_of(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return none();
    }
    return found;
}

static PyObject *header_tuple(const quorate_batch_header *header) {
    return Py_BuildValue("(LiiiIiiLLLiii)", (long long)header->base_offset, (int)header->batch_length,
                         (int)header->partition_leader_epoch, (int)header->magic, (unsigned int)header->crc,
                         (int)header->attributes, (int)header->last_offset_delta, (long long)header->base_timestamp,
                         (long long)header->max_timestamp, (long long)header->producer_id,
                         (int)header->producer_epoch, (int)header->base_sequence, (int)header->record_count);
}

static uint32_t crc_of(const uint8_t *batch, size_t size) {
    const uint8_t *covered = batch + QUORATE_CRC_START;
    size -= QUORATE_CRC_START;
    if (size < QUORATE_GIL_FREE_BYTES)
        return quorate_crc32c(0, covered, size);
    uint32_t crc;
    Py_BEGIN_ALLOW_THREADS
    crc = quorate_crc32c(0, covered, size);
    Py_END_ALLOW_THREADS
    return crc;
}

static PyObject *read_produced_header(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "read_produced_header takes 3 arguments, not %zd", count);
        return NULL;
    }
    long produce_version = PyLong_AsLong(arguments[1]);
    int may_have_holes = PyObject_IsTrue(arguments[2]);
    if (may_have_holes < 0 || (produce_version == -1 && PyErr_Occurred()))
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    quorate_batch_header header;
    bool is_sound = quorate_read_produced_header(view.buf, (size_t)view.len, (int)produce_version, may_have_holes,
                                                 &header) &&
                    crc_of(view.buf, (size_t)view.len) == header.crc;
    PyBuffer_Release(&view);
    return is_sound ? header_tuple(&header) : none();
}

PyMethodDef quorate_produced_methods[] = {
    {"read_request", read_request, METH_O,
     "read_request(frame, /)\n--\n\nThe fields of a Produce or Fetch request of the usual shape, or None."},
    {"read_produced_header", (PyCFunction)(void (*)(void))read_produced_header, METH_FASTCALL,
     "read_produced_header(batch, produce_version, may_have_holes, /)\n--\n\n"
     "The fields of the header where the batch is one that a producer may send, or None."},
    {NULL, NULL, 0, NULL},
};
