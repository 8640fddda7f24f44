"""A run of a restore: checked and surveyed, committed to a plan, written by tasks, finished."""
