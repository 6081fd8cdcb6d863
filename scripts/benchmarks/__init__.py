"""Benchmarks, one file per command, with shared modules."""
