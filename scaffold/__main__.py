"""``python -m scaffold`` is the same command as ``omni-scaffold``."""

from scaffold.cli import run

if __name__ == "__main__":
    run()
