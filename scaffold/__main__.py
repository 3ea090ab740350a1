"""``python -m scaffold`` is the same command as ``omni-scaffold``."""

from scaffold.cli import main

if __name__ == "__main__":
    main()
