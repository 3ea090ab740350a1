# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Entries of JSON files of a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from .engine_config import checkpoint_folder


def setting(model_path: str, file: str, keys: Sequence[str], default: Any = None) -> Any:
    """An entry of a JSON file of the checkpoint.

    Args:
        model_path: the checkpoint's folder, or its one file.
        file: path below the folder.
        keys: under which it stands, from the outside to the inside.
        default: in its place where there is none.

    Raises:
        ValueError: there is no such entry, and no default.
    """
    path = os.path.join(checkpoint_folder(model_path), file)
    value: Any = {}
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as handle:
            value = json.load(handle)
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None and default is None:
        raise ValueError(f"{path} has no {'.'.join(keys)}")
    return default if value is None else value


def scheduler_config(model_path: str, folder: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Settings of the pipeline's scheduler.

    Raises:
        ValueError: the checkpoint has none, and there is no default.
    """
    path = os.path.join(checkpoint_folder(model_path), folder, "scheduler_config.json")
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as handle:
            return dict(json.load(handle))
    if default is None:
        raise ValueError(f"there is no {path}")
    return default
