"""The layers of dgl.nn on a TensorGraph: how each is made and called, the comparison, the page."""
