"""Links between the nodes of a cluster: introduced, ordered, bounded; what they carry is not looked at."""
