"""What one client, or a change of 10,000 partitions, costs all other clients of a cluster."""
