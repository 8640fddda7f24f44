/* What regions_core.c finds in a region, for Python: the twins are in quorate/client/fetch/regions.py and in
 * quorate/backup/segments/stretches.py. */

#include "native.h"

#include "regions_core.h"

/* A region under a thread that lets others run, if it has enough to do. */
#define UNLOCKED(size_bytes, work)                                                                                     \
    do {                                                                                                               \
        PyThreadState *state = (size_bytes) < QUORATE_GIL_FREE_BYTES ? NULL : PyEval_SaveThread();                     \
        work;                                                                                                          \
        if (state)                                                                                                     \
            PyEval_RestoreThread(state);                                                                               \
    } while (0)

/* For "O&". Offsets come from batches, and the one behind the last of 64 bits has more: nothing stands at or behind
 * either of them, so the largest number does for all that are larger. */
static int bounded(PyObject *number, void *result) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (value == -1 && !overflow && PyErr_Occurred())
        return 0;
    *(int64_t *)result = overflow ? (overflow > 0 ? INT64_MAX : INT64_MIN) : value;
    return 1;
}

static PyObject *cut_region(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer view;
    CutRange range;
    RegionCut cut;
    if (!PyArg_ParseTuple(
            arguments,
            "y*O&O&p",
            &view,
            bounded,
            &range.start_offset,
            bounded,
            &range.end_offset,
            &range.include_batch_across_end))
        return NULL;
    Region region = {view.buf, view.len};
    int is_known;
    UNLOCKED(view.len, is_known = quorate_cut_region(&region, &range, &cut));
    PyBuffer_Release(&view);
    if (!is_known)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "(LLLLLLL)",
        cut.start,
        cut.end,
        cut.batch_count,
        cut.last_offset,
        cut.leader_epoch,
        cut.region_last_offset,
        cut.outside_offset);
}

static PyObject *check_region(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Region region = {view.buf, view.len};
    int is_sound;
    UNLOCKED(view.len, is_sound = quorate_check_region(&region));
    PyBuffer_Release(&view);
    return PyBool_FromLong(is_sound);
}

static PyObject *follow(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer view;
    StretchRules rules;
    Stretch stretch;
    if (!PyArg_ParseTuple(
            arguments,
            "y*O&(O&O&O&pO&p)",
            &view,
            bounded,
            &rules.position,
            bounded,
            &rules.room_bytes,
            bounded,
            &rules.next_offset,
            bounded,
            &rules.end_offset,
            &rules.ends_before,
            bounded,
            &rules.leader_epoch,
            &rules.is_compressed))
        return NULL;
    Region region = {view.buf, view.len};
    UNLOCKED(view.len, quorate_follow(&region, &rules, &stretch));
    PyBuffer_Release(&view);
    return Py_BuildValue(
        "(LLLLLLLLO)",
        stretch.batch_count,
        stretch.size_bytes,
        stretch.last_offset,
        stretch.record_count,
        stretch.control_record_count,
        stretch.min_timestamp,
        stretch.max_timestamp,
        stretch.largest_batch_bytes,
        stretch.is_plain ? Py_True : Py_False);
}

PyMethodDef quorate_regions_methods[] = {
    {"cut_region", cut_region, METH_VARARGS,
     "cut_region(data, start_offset, end_offset, include_batch_across_end, /)\n--\n\n"
     "What of a region belongs to a range; None where the twin has to be asked."},
    {"check_region", check_region, METH_O,
     "check_region(data, /)\n--\n\nWhether all of it is whole batches of magic 2 with the right CRC."},
    {"follow", follow, METH_VARARGS,
     "follow(data, position, rules, /)\n--\n\n"
     "The stretch of batches from a position on that keep to the rules."},
    {NULL, NULL, 0, NULL},
};
