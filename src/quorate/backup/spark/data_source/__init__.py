"""The Spark data source ``quorate``: a backup or a live cluster as rows.

Only ``source``, ``stream_source``, ``worker`` and ``export`` know Spark. Options, plans and readers are plain Python,
give Arrow batches and work without it.
"""
