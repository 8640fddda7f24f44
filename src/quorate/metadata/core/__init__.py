"""Cluster metadata: the records, the image that readers see, and the controller's decisions.

One truth: partition leader, leader epoch, replicas and in-sync replicas live in the image and nowhere else. Commands
are decided into records (``controller``), and replaying a record is the only thing that changes an image (``image``).
"""
