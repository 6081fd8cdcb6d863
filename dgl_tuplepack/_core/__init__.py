"""Kernels, argument checks, file access, progress bars and imports of optional packages, for all rooms (subpackages).

In: numbers, arrays, paths. Out: checked values, and arrays that kernels computed. It uses no other room.
"""
