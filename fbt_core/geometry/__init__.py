"""Where a metric lives, what it measures, and how vectors move between tokens."""
