"""Run the command line: ``python -m dgl_tuplepack`` does the same as ``dgl-tuplepack``."""

from dgl_tuplepack.tools.cli import main

main()
