"""Modules of `reproduce_paper.py`: the paper's figures, the available histograms, and the page made from both."""
