"""The restore beside other ways to get the same records into the same cluster, and beside what the cluster can take."""
