"""A node, composed: it owns the partitions, the metadata and the coordinators, and answers the Kafka APIs."""
