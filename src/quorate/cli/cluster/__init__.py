"""``quorate cluster``: the commands for those who run a cluster."""
