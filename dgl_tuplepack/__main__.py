"""``python -m dgl_tuplepack`` is ``dgl-tuplepack``."""

from dgl_tuplepack.cli import main

main()
