"""Compiled loops over arrays. They check nothing and import nothing else of the package."""
