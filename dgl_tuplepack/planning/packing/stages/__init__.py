"""The stages of "auto": `sequence.py` has the stages in their order, the other files have the algorithms they use."""
