"""A bound on the lines of a log that strangers can cause: so many in some seconds, and then how many were left out."""


class LineLimit:
    def __init__(self, most: int = 50, interval_s: float = 10.0) -> None:
        self._most = most
        self._interval_s = interval_s
        self._began_s = float("-inf")
        self._told = 0
        self._untold = 0

    def admit(self, now_s: float) -> int | None:
        """How many lines were left out before this one; None where this one is left out too."""
        if now_s - self._began_s >= self._interval_s:
            self._began_s, self._told = now_s, 0
        if self._told >= self._most:
            self._untold += 1
            return None
        self._told += 1
        untold, self._untold = self._untold, 0
        return untold
