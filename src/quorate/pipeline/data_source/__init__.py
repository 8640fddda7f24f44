"""The Spark data source ``quorate``: a backup or a live cluster as rows. Only what is named ``source`` knows Spark.

The rest works without it: options, plans and readers are plain Python, and give Arrow batches.
"""
