"""Record batches: fetched in whole ranges from all leaders at once, or in one round for callers with own positions."""
