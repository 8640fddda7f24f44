"""What is asked of and changed in a cluster: topics, configs, groups, brokers, the quorum."""
