"""Exceptions of the package. Input errors are also ``ValueError``."""

from __future__ import annotations


class TuplepackError(Exception):
    """Base of every exception that this package raises on purpose."""


class InputError(TuplepackError, ValueError):
    """An argument or an input is not valid."""


class SizesError(InputError):
    """Graph sizes or a size histogram are malformed, empty or too large."""


class LimitsError(InputError):
    """Limits are malformed, or do not match the components of the sizes."""


class GraphTooLargeError(LimitsError):
    """A `LimitsError`: a single graph, or the graphs of a batch together, exceed the limits."""


class MethodError(InputError):
    """An unknown packing method, or a heuristic that cannot be used."""


class SearchError(InputError):
    """The settings of a search for limits contradict each other, or no limits reach the target of the search."""


class PlanError(InputError):
    """A plan exceeds its own limits, or was made for sizes other than the given sizes."""


class SamplerError(InputError):
    """The settings of a sampler contradict each other, or do not match the processes that train."""


class SchemaError(InputError):
    """Graphs or labels do not have the expected types, features or shapes."""


class TransformError(InputError):
    """A transform fails, returns a wrong value, or enlarges graphs after their sizes were counted."""


class UnsupportedError(InputError, AttributeError):
    """TensorGraph does not support an operation or an attribute."""


class CompileError(InputError):
    """A function cannot be compiled, or is called with inputs it was not compiled for."""


class FormatError(InputError):
    """A file is missing, damaged, of another format or of a newer version."""


class ShardsError(InputError):
    """Some shards of a dataset could not be made; all other shards are complete."""


class MissingDependencyError(TuplepackError, ImportError):
    """An optional package is not installed or cannot be loaded."""
