"""Version of the package, read by setup.cfg without importing the rest."""

__version__ = "0.1.0"
