/* What restored_core.c does to stored batches, for Python: the twins are in quorate/backup/restore/batches.py and in
 * quorate/records/batch.py. */

#include "native.h"

#include "restored_core.h"

/* (header, records, record count), the records being a view. */
static PyObject *outgoing(PyObject *view, const Region *region, int64_t position, int64_t *size_bytes) {
    uint8_t header[QUORATE_HEADER_SIZE_BYTES];
    PlainBatch plain = quorate_plain_batch(region, position, header);
    *size_bytes = plain.size_bytes;
    if (!plain.size_bytes) {
        PyErr_SetString(PyExc_RuntimeError, "the frame was changed while it was read");
        return NULL;
    }
    PyObject *start = PyLong_FromLongLong(position + QUORATE_HEADER_SIZE_BYTES);
    PyObject *end = PyLong_FromLongLong(position + plain.size_bytes);
    PyObject *slice = start && end ? PySlice_New(start, end, NULL) : NULL;
    PyObject *records = slice ? PyObject_GetItem(view, slice) : NULL;
    Py_XDECREF(start);
    Py_XDECREF(end);
    Py_XDECREF(slice);
    if (!records)
        return NULL;
    PyObject *changed = PyByteArray_FromStringAndSize((const char *)header, sizeof header);
    return Py_BuildValue("(NNL)", changed, records, (long long)plain.record_count); /* NULL where one of them is. */
}

static PyObject *all_outgoing(PyObject *data, const Region *region) {
    PyObject *view = PyMemoryView_FromObject(data);
    PyObject *found = view ? PyList_New(0) : NULL;
    int64_t position = 0, size_bytes;
    while (found && position < region->size_bytes) {
        PyObject *batch = outgoing(view, region, position, &size_bytes);
        if (!batch || PyList_Append(found, batch) < 0)
            Py_CLEAR(found);
        Py_XDECREF(batch);
        position += size_bytes;
    }
    Py_XDECREF(view);
    return found;
}

static PyObject *plain_batches(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *data;
    FrameRules rules;
    if (!PyArg_ParseTuple(
            arguments,
            "O(LLLLLLL)",
            &data,
            &rules.batch_count,
            &rules.base_offset,
            &rules.last_offset,
            &rules.from_offset,
            &rules.end_offset,
            &rules.max_batch_bytes,
            &rules.end_ms))
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Region region = {view.buf, view.len};
    PyObject *found;
    if (quorate_goes_whole(&region, &rules))
        found = all_outgoing(data, &region);
    else
        found = Py_NewRef(Py_None);
    PyBuffer_Release(&view);
    return found;
}

static PyObject *stamp(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer header, records;
    long long producer_id;
    int producer_epoch, base_sequence;
    if (!PyArg_ParseTuple(arguments, "w*y*Lii", &header, &records, &producer_id, &producer_epoch, &base_sequence))
        return NULL;
    int32_t last_offset_delta = -1;
    if (header.len == QUORATE_HEADER_SIZE_BYTES) {
        Region region = {records.buf, records.len};
        Stamp stamp = {producer_id, producer_epoch, base_sequence};
        PyThreadState *state = records.len < QUORATE_GIL_FREE_BYTES ? NULL : PyEval_SaveThread();
        last_offset_delta = quorate_stamp(header.buf, &region, &stamp);
        if (state)
            PyEval_RestoreThread(state);
    }
    PyBuffer_Release(&header);
    PyBuffer_Release(&records);
    return PyLong_FromLong(last_offset_delta);
}

PyMethodDef quorate_restored_methods[] = {
    {"plain_batches", plain_batches, METH_VARARGS,
     "plain_batches(data, rules, /)\n--\n\n"
     "Header, records and record count of each batch of a frame that goes back as it is; None: ask the twin."},
    {"stamp", stamp, METH_VARARGS,
     "stamp(header, records, producer_id, producer_epoch, base_sequence, /)\n--\n\n"
     "Makes a batch a producer's; the delta of its last offset, or -1 where the twin has to be asked."},
    {NULL, NULL, 0, NULL},
};
