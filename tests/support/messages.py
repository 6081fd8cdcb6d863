"""One way to check a refusal: its exact type, and that its message says what it has to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dgl_tuplepack.errors import TuplepackError


@contextmanager
def refused(error: type[TuplepackError], *parts: str) -> Iterator[None]:
    """Expect exactly `error`, with every one of `parts` in its message."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert type(caught.value) is error, f"{type(caught.value).__name__} instead of {error.__name__}: {message}"
    missing = [part for part in parts if part not in message]
    assert not missing, f"the message {message!r} does not say {missing}"
