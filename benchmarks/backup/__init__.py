"""The backup beside other ways to get the same records out of the same cluster, and beside the limit of the machine."""
