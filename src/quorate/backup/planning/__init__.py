"""What a run copies: topics chosen, the cluster as it was found, offset ranges packed into tasks."""
