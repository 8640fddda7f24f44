"""What the benchmarks of Spark jobs share: processes that do the same work in turns, and what is made of their runs."""
