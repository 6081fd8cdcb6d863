"""Kernels, argument checks, file access, progress bars and imports of optional packages, for all rooms (subpackages).

It uses no other room.
"""
