"""The learner's own objects on their way to the ranks, by value.

cloudpickle copies what is defined in a notebook (``__main__``). It also replaces the file name of
every function by "<dynamic-code>"; the names are kept here, so that a rank's traceback can show the
line of the cell that failed (the notebook sends the cells' text along, see ``cells``).
"""

from __future__ import annotations

import io
import linecache
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar

import cloudpickle


def _code_with_its_file(code: CodeType) -> Any:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, tuple(code.co_filename if a == "<dynamic-code>" else a for a in arguments)


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar[Any] = ChainMap(
        {CodeType: _code_with_its_file}, cloudpickle.Pickler.dispatch_table
    )


def dumps(value: Any) -> bytes:
    """`value` as bytes; raises what cloudpickle raises when something cannot be copied."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def cells() -> dict[str, list[str]]:
    """File name and lines of every cell that this notebook has run."""
    found = {}
    for name, entry in list(linecache.cache.items()):
        if ("ipykernel" in name or name.startswith("<ipython")) and len(entry) == 4:
            found[name] = list(entry[2])
    return found
