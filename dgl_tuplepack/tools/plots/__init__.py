"""Pictures of histograms, plans and searches.

Every function draws into matplotlib Axes `ax`, those of a new figure if it is None, and returns them.
Errors: SizesError for components that do not exist or are too few or many, LimitsError for limits of other components,
SearchError for a search of several shapes, PlanError for plans of several histograms, InputError for an unknown scale.

All can be read in grey: colour maps are perceptually uniform, and lines differ in style and marker too.
"""

from dgl_tuplepack.tools.plots.plans import plot_fill, plot_methods
from dgl_tuplepack.tools.plots.saving import save_picture
from dgl_tuplepack.tools.plots.search import plot_search
from dgl_tuplepack.tools.plots.sizes import plot_distributions, plot_sizes

__all__ = ["plot_distributions", "plot_fill", "plot_methods", "plot_search", "plot_sizes", "save_picture"]
