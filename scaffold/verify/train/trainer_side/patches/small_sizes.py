"""A pipeline that makes images of the sizes in a table alone gets one small size in its place, as at level ``rollout``.

Which table is meant is the run's to say: ``OMNI_SCAFFOLD_TRAIN_SIZES``, with ``module``, ``constant``, ``sizes`` as the
package knows them, and ``side`` of the small one, in pixels.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

PLACES: dict[str, tuple[str, ...]] = {}


def patch(module: Any) -> None:
    """Change the table before another module imports it.

    Raises:
        LookupError: it is not the one that the package was made for.
    """
    from scaffold.verify.rollout.engine_side.sizes import replaced

    table = _table()
    setattr(module, table["constant"], replaced(module, table, [(table["side"], table["side"])])[1])


def hooks() -> dict[str, Callable[[Any], None]]:
    """Change the run's table, where it has one."""
    table = _table()
    return {table["module"]: patch} if table else {}


def _table() -> Any:
    return json.loads(os.environ.get("OMNI_SCAFFOLD_TRAIN_SIZES") or "null")
