"""A Produce request on its way into the logs: what is checked, what may refuse it, when it is answered."""
