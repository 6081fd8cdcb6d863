"""The structure of PyG's graphs: what belongs to nodes, to edges or to the graph, and what PyG shifts in batches."""
