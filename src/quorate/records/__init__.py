"""Record batches: magic 2 read, patched, checked and built; message formats 0 and 1 read."""
