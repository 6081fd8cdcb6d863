"""A demo on synthetic molecules, from sizes to training: plans, padded batches, a short training and pictures."""
