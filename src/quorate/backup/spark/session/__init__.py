"""A Spark session, opened and always closed, and the jobs that run on it."""
