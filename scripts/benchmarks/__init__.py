"""One file for each family of benchmarks."""
