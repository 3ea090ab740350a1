"""A pipeline that makes images of the sizes in a table alone gets one small size in its place, as at level ``rollout``.

Which table is meant is the run's to say: ``OMNI_SCAFFOLD_TRAIN_SIZES``, with ``module``, ``constant``, ``sizes`` as the
package knows them, and ``side`` of the small one, in pixels.
"""

from __future__ import annotations

import json
import os
from typing import Any

PLACES: dict[str, tuple[str, ...]] = {}
TABLE = json.loads(os.environ.get("OMNI_SCAFFOLD_TRAIN_SIZES") or "null")


def patch(module: Any) -> None:
    """Change the table before another module imports it.

    Raises:
        LookupError: it is not the one that the package was made for.
    """
    from scaffold.verify.rollout.engine_side.sizes import replaced

    setattr(module, TABLE["constant"], replaced(module, TABLE, [(TABLE["side"], TABLE["side"])])[1])


HOOKS = {TABLE["module"]: patch} if TABLE else {}
