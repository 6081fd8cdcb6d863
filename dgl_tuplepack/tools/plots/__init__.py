"""Pictures of histograms, batches, plans and searches.

Every `plot_` function draws into the matplotlib Axes `ax` and returns `ax`; if `ax` is None, the function makes
a new figure and returns its Axes.

Errors: SizesError for unknown components or a wrong number of components; LimitsError for limits whose
components differ from those of the histogram; SearchError for a search for shape buckets; PlanError for plans of
different histograms; InputError for an unknown scale, or for batches that are too large for their slots.

All pictures are readable in greyscale: colour maps are perceptually uniform, and lines also differ in style and marker.
"""

from dgl_tuplepack.tools.plots._drawing import save_picture
from dgl_tuplepack.tools.plots.plans import plot_batches, plot_fill, plot_methods
from dgl_tuplepack.tools.plots.search import plot_search
from dgl_tuplepack.tools.plots.sizes import plot_distributions, plot_sizes

__all__ = [
    "plot_batches", "plot_distributions", "plot_fill", "plot_methods", "plot_search", "plot_sizes", "save_picture"
]  # fmt: skip
