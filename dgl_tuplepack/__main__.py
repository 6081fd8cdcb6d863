"""``python -m dgl_tuplepack`` is ``dgl-tuplepack``."""

from dgl_tuplepack.tools.cli import main

main()
