"""What keeps a backup sound and small: verification, compaction, and the maintenance of a continuous one."""
