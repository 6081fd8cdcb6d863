"""Pictures of histograms, batches, plans and searches.

Every function draws into matplotlib Axes `ax` and returns them; if `ax` is None, it makes a new figure.
Errors: SizesError for unknown components or a wrong number of them, LimitsError for limits of other components,
SearchError for a search of shape buckets, PlanError for plans of several histograms, InputError for an unknown scale or
batches that do not fit.

All pictures are readable in greyscale: colour maps are perceptually uniform, and lines also differ in style and marker.
"""

from dgl_tuplepack.tools.plots.batches import plot_batches
from dgl_tuplepack.tools.plots.plans import plot_fill, plot_methods
from dgl_tuplepack.tools.plots.saving import save_picture
from dgl_tuplepack.tools.plots.search import plot_search
from dgl_tuplepack.tools.plots.sizes import plot_distributions, plot_sizes

__all__ = [
    "plot_batches", "plot_distributions", "plot_fill", "plot_methods", "plot_search", "plot_sizes", "save_picture"
]  # fmt: skip
