/* The module quorate._native: what the other files offer, under one name. */

#include "native.h"

#ifndef QUORATE_VERSION
#error "hatch_build.py says which version this is"
#endif

static PyMethodDef *const method_lists[] = {
    quorate_columns_methods,
    quorate_crc32c_methods,
    quorate_regions_methods,
    quorate_restored_methods,
    quorate_produced_methods,
    quorate_answers_methods,
};

static int fill(PyObject *module) {
    for (size_t index = 0; index < sizeof method_lists / sizeof *method_lists; index++)
        if (PyModule_AddFunctions(module, method_lists[index]) < 0)
            return -1;
    if (PyModule_AddIntConstant(module, "INTERFACE", QUORATE_INTERFACE) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "VERSION", QUORATE_VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "quorate._native",
    .m_doc = "What is done per batch and per record, compiled. See quorate.kernel.native.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void) {
    return PyModuleDef_Init(&definition);
}
