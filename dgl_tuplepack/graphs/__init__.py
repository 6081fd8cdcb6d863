"""What a graph is, whatever file it comes from: the items of a dataset, blocks of arrays, and their schema."""
