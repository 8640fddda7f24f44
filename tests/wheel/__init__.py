"""The package as users get it: built, installed into a clean environment, tried (``python -m tests.wheel``)."""
