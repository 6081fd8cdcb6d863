"""Version of the package. setup.cfg reads it without importing the rest of the package."""

__version__ = "0.2.0"
