"""Cluster metadata: records, image and the controller's decisions in ``core``, and the store that a node reads."""
