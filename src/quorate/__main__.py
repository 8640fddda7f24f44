"""``python -m quorate`` is the same as ``quorate``."""

from quorate.cli import main

if __name__ == "__main__":
    main()
