"""A demo on synthetic molecules, from sizes to training: plans, padded batches, a short training run, and pictures."""
