"""Commands as users type them: what Python, the JVM, Spark and the first job add to the work."""
