"""The cluster doctor: what each node says, what each node does when tried, and where the two disagree."""
