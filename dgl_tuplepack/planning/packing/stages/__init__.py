"""The stages of "auto": `sequence.py` has the stages in order; other files have the algorithms that stages use."""
