"""Whether this process is the console script's: nothing of the tool was replaced, and what it finds may be kept."""

MAY_CACHE = False
