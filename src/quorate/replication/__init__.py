"""Moving records between the replicas of a partition: the shell around the rules in ``quorate.replication.core``.

A follower asks the leader of each partition for what comes after its log, once; the leader answers when there is
something, and the follower asks again. All partitions that two nodes share travel in the same requests, and one in
which nothing happens costs nothing.
"""
