"""Pictures of histograms, plans and searches.

Every function draws into matplotlib Axes `ax`, those of a new figure if it is None, and returns them.

All can be read in grey: colour maps are perceptually uniform, and lines differ in style and marker too.
"""

from dgl_tuplepack.plots.fill import plot_fill, plot_graphs_per_pack, plot_sorted_fill
from dgl_tuplepack.plots.methods import plot_methods
from dgl_tuplepack.plots.saving import save_picture
from dgl_tuplepack.plots.search import plot_search, plot_tradeoff
from dgl_tuplepack.plots.sizes import plot_distributions, plot_sizes
from dgl_tuplepack.plots.weights import plot_weights

__all__ = [
    "plot_distributions",
    "plot_fill",
    "plot_graphs_per_pack",
    "plot_methods",
    "plot_search",
    "plot_sizes",
    "plot_sorted_fill",
    "plot_tradeoff",
    "plot_weights",
    "save_picture",
]
