"""A Spark that stays after the command that started it, for the next ones of the same user."""
