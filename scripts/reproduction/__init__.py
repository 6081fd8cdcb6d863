"""Parts of `reproduce_paper.py`: the paper's figures, the histograms at hand, and the page made of both."""
