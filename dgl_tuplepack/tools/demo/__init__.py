"""The whole way on synthetic molecules: sizes, plans, padded batches, a short training, pictures."""
