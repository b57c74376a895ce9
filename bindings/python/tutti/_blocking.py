"""Converts calls that return a Work to blocking calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from ._tutti import Work

_Arguments = ParamSpec("_Arguments")


def blocking(begin: Callable[_Arguments, Work]) -> Callable[_Arguments, Any]:
    """Returns the blocking form of a call: NAME of NAME_async."""

    @functools.wraps(begin)
    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> Any:
        return begin(*arguments, **options)._finish()

    call.__name__ = begin.__name__.removesuffix("_async")
    call.__qualname__ = begin.__qualname__.removesuffix("_async")
    signature = inspect.signature(begin).replace(return_annotation="Array")
    setattr(call, "__signature__", signature)  # shown by help()
    return call
