"""The stages of "auto": `sequence.py` has them in their order, the other files the algorithms that they use."""
