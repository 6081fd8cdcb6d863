"""Compiled loops over arrays. Callers check the arguments, unless a kernel states that it checks them itself."""
