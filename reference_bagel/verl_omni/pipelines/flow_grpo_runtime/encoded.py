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
"""The prompt that a pipeline really encoded, from the rollout to training."""

from __future__ import annotations

import threading
from typing import Any

import torch

IDS, MASK = "encoded_prompt_ids", "encoded_prompt_mask"


class PromptRecorder:
    """Keeps the ids that a pipeline embeds, so that training is given those that it really encoded.

    Each thread has a request of its own.

    Args:
        pipeline: has the table of embeddings under the name ``embed_tokens``.
        name: of its class, for messages.

    Raises:
        RuntimeError: the pipeline has no such module.
    """

    def __init__(self, pipeline: torch.nn.Module, name: str) -> None:
        self.name = name
        self._request = threading.local()
        tables = {module for path, module in pipeline.named_modules() if path.rpartition(".")[2] == "embed_tokens"}
        if not tables:
            raise RuntimeError(f"{name} has no module embed_tokens, by which a prompt enters")
        for table in tables:
            table.register_forward_pre_hook(self._keep)

    def begin(self, expected: list[int] | None, width: int) -> None:
        """Start a request.

        Args:
            expected: ids that its text has; None where nothing is to be recorded.
            width: most ids that a prompt may have.

        Raises:
            ValueError: there are more ids; they are never cut.
        """
        if expected is not None and len(expected) > width:
            raise ValueError(f"{len(expected)} tokens of a prompt where max_sequence_length leaves room for {width}")
        self._request.expected, self._request.width, self._request.embedded = expected, width, []

    def _keep(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if args:
            self.note(args[0])

    def note(self, ids: torch.Tensor) -> None:
        """Record ids that the pipeline embeds."""
        if getattr(self._request, "expected", None) is not None:
            self._request.embedded.append(ids.detach().flatten().clone())

    def finish(self) -> dict[str, torch.Tensor]:
        """Ids ``(1, width)`` int64 and their mask ``(1, width)`` bool, by column; nothing where none was expected.

        All requests have the same width, so that their columns stack; zeros and False stand behind the ids.

        Raises:
            RuntimeError: the pipeline did not embed the expected ids, in one piece.
        """
        request = self._request
        if getattr(request, "expected", None) is None:
            return {}
        expected, request.expected = torch.tensor(request.expected, dtype=torch.long), None
        if not any(_holds(embedded.cpu(), expected) for embedded in request.embedded):
            raise RuntimeError(
                f"{self.name} encoded another prompt than the {len(expected)} tokens that training would be given"
            )
        behind = request.width - len(expected)
        return {
            IDS: torch.nn.functional.pad(expected, (0, behind))[None],
            MASK: torch.arange(request.width)[None] < len(expected),
        }


def _holds(ids: torch.Tensor, part: torch.Tensor) -> bool:
    """Whether ``part`` ``(L,)`` stands in ``ids`` ``(M,)`` in one piece."""
    return len(ids) >= len(part) and bool((ids.unfold(0, len(part), 1) == part).all(dim=1).any())
