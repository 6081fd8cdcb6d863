"""The process around a command: from interrupts and errors to one line and an exit code."""

from __future__ import annotations

from dgl_tuplepack.cli import interrupts, streams


def run() -> int:
    """Run the command that the arguments of this process name; return the exit code."""
    interrupts.install(streams.note)
    try:
        streams.install()
        try:
            code = _run_command()
        except BaseException as error:
            if not interrupts.happened():
                raise
            # The interrupt may have become another error on its way, inside an import for instance.
            raise KeyboardInterrupt from error
        code = streams.finish(code)
    except KeyboardInterrupt:
        code = 130
    # From here on, an interrupt ends the process at once: there is nothing left to clean up.
    interrupts.uninstall()
    if code == 130:
        streams.finish(code)
        streams.note("interrupted")
    return code


def _run_command() -> int:
    # The slow imports begin here; if kernels have to be compiled, they take a minute.
    import warnings

    from dgl_tuplepack._optional import EXTRAS, missing
    from dgl_tuplepack.errors import LimitsError, MethodError, TuplepackError

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: streams.note(str(message))
        try:
            from dgl_tuplepack.cli.commands import run_app

            interrupts.begin_work()
            return run_app()
        except TuplepackError as error:
            streams.note(" ".join(str(error).split()))
            # Only options raise these two; GraphTooLargeError, a subclass, exits with 1.
            return 2 if type(error) in (LimitsError, MethodError) else 1
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            streams.note(str(missing(package, error)))
        except OSError as error:
            path = "a file" if error.filename is None else error.filename
            streams.note(f"cannot use {path}: {error.strerror or error}; check the path and the disk.")
        except MemoryError:
            streams.note("there is not enough memory; use fewer or smaller graphs, or a machine with more memory.")
        return 1
