"""A cluster on this machine: its folder, its processes, the files that set its nodes up."""
