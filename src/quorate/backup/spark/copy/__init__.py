"""A run of a backup: the cluster captured, its ranges copied by tasks, the manifest committed."""
