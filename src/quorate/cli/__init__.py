"""The command line: a module a command, and what several of them share. ``commands`` is the list of all."""
