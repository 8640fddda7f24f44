/* What the files of the module share. Only the stable ABI of Python 3.11 is used: one module serves it and all later ones.
 *
 * Rules for every function: it reads and writes nothing outside of the buffers that it was given, whatever their bytes
 * are; loops over more than QUORATE_GIL_FREE_BYTES let other threads run; and it gives what its Python twin gives. Where
 * the bytes are odd it may say so instead, and leave the error to the twin. Work on bytes that a fuzz is to reach stands
 * in a file of its own, `<idea>_core.c`, that knows nothing of Python. */

#ifndef QUORATE_NATIVE_H
#define QUORATE_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc32c_core.h"

/* Raised by whoever adds, removes or changes a function, here and in quorate/kernel/native.py: a module that was built for
 * another package is not used. */
#define QUORATE_INTERFACE 5

/* Giving up the interpreter costs little, but taking it back can mean to wait for the slice of another thread: for less
 * than some ten microseconds of work that is a bad bargain. */
#define QUORATE_GIL_FREE_BYTES (64 * 1024)

/* One list for each file of functions; module.c puts them into the module. */
extern PyMethodDef quorate_columns_methods[];
extern PyMethodDef quorate_crc32c_methods[];
extern PyMethodDef quorate_regions_methods[];
extern PyMethodDef quorate_restored_methods[];
extern PyMethodDef quorate_produced_methods[];
extern PyMethodDef quorate_answers_methods[];

#endif
