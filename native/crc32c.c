/* crc32c(data, crc=0, /): the checksum for Python. */

#include "native.h"

/* Read in about ten microseconds. */
#define GIL_FREE_BYTES (4 * QUORATE_GIL_FREE_BYTES)

static PyObject *crc32c(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 1 || count > 2) {
        PyErr_Format(PyExc_TypeError, "crc32c takes 1 or 2 arguments, not %zd", count);
        return NULL;
    }
    unsigned long before = count == 2 ? PyLong_AsUnsignedLong(arguments[1]) : 0;
    if (before == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (before > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a checksum has 32 bits");
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t crc;
    if (view.len < GIL_FREE_BYTES) {
        crc = quorate_crc32c((uint32_t)before, view.buf, (size_t)view.len);
    } else {
        Py_BEGIN_ALLOW_THREADS
        crc = quorate_crc32c((uint32_t)before, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

PyMethodDef quorate_crc32c_methods[] = {
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL,
     "crc32c(data, crc=0, /)\n--\n\nThe CRC-32C of data, behind bytes that have the checksum crc."},
    {NULL, NULL, 0, NULL},
};
