"""The structure of PyG graphs: what each attribute belongs to, and by how much PyG shifts its values in batches."""
