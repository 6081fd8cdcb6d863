"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 interrupted.

If an option such as ``--cost NAME=NUMBER`` names a component that the graphs do not have, this is bad usage. Goals that
the graphs cannot reach are failures of the work. LimitsError itself (not a subclass) and MethodError are bad usage;
`options.usage_errors()` turns other errors about settings into bad usage.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from dgl_tuplepack._core.interrupts import interrupts_held

        # This import is slow, and libraries run callbacks during it. An interrupt would be lost in such a callback.
        with interrupts_held():
            from dgl_tuplepack.tools.cli.commands import run

        code = run()
    except KeyboardInterrupt:
        code = 130
    if code == 130:
        print("dgl-tuplepack: interrupted", file=sys.stderr)
    sys.exit(code)
