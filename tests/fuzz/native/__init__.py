"""Hostile bytes for the functions of the native module that know nothing of Python, under sanitizers.

A target is a file ``<name>.c`` here, which defines ``fuzz_one`` of ``fuzz.h``, and a function that makes its seeds in
``corpus.SEEDS``. It is linked with all of ``native/*_core.c``.
"""
