"""One script a figure in the README. Each prints ratios that were measured in one run, on the machine it names."""
