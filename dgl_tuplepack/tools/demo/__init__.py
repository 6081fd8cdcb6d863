"""A demo on synthetic molecules."""
