"""Kernels, checks of arguments, files, progress bars and optional packages, for all rooms.

In: numbers, arrays, paths. Out: the same, checked or computed. It uses no other room.
"""
