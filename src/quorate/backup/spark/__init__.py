"""The jobs that run on Spark, a room for each kind of run; ``session/`` opens Spark. Nothing else imports pyspark.

One job has one shape: a list of tasks, each of which works through its part alone and sends back one small row. Record
data never passes through the JVM. A task may run twice; only the driver commits.
"""
