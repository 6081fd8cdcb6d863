"""Write a dataset as a store with plans: `python scripts/preprocess.py SOURCE OUT`; see `--help`."""

from __future__ import annotations

import sys

from dgl_tuplepack.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "preprocess")
    main()
