"""Kernels, checks of arguments, files, progress bars and optional packages, for all rooms (subpackages).

In: numbers, arrays, paths. Out: checked values, and arrays that kernels computed. It uses no other room.
"""
