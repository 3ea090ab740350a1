"""Training gets the conditional inputs for both branches, which is not guidance; the rollout keeps its own."""

from __future__ import annotations

import os
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

METHOD = "prepare_model_inputs"


@after(f"{os.environ.get('OMNI_SCAFFOLD_TRAIN_PACKAGE', '')}.*")
def patch(module: Any) -> None:
    """Change what the training adapter prepares."""
    for value in list(vars(module).values()):
        if isinstance(value, type) and METHOD in vars(value) and value.__module__ == module.__name__:
            setattr(value, METHOD, classmethod(_same(vars(value)[METHOD].__func__)))


def _same(original: Any) -> Any:
    def prepare_model_inputs(cls: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        positive, negative = original(cls, *args, **kwargs)
        return positive, None if negative is None else positive

    return prepare_model_inputs
