"""Graphs, independent of where they come from: items of a dataset, blocks of arrays, and their schema."""
