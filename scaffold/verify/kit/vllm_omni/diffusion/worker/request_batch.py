"""Requests that run together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omni_scaffold_kit.profile import require_module

from vllm_omni.diffusion.request import OmniDiffusionRequest
from vllm_omni.inputs.data import OmniDiffusionSamplingParams, OmniPromptType

require_module(__name__)


@dataclass
class DiffusionRequestBatch:
    """What ``forward`` gets; exactly one request unless the pipeline says ``supports_request_batch``."""

    requests: list[OmniDiffusionRequest]

    @property
    def num_reqs(self) -> int:
        """Number of requests."""
        return len(self.requests)

    @property
    def request_ids(self) -> list[str]:
        """Identifier of each request."""
        return [request.request_id for request in self.requests]

    @property
    def prompts(self) -> list[OmniPromptType]:
        """Prompt of each request."""
        return [request.prompt for request in self.requests]

    @property
    def sampling_params_list(self) -> list[OmniDiffusionSamplingParams]:
        """Sampling settings of each request."""
        return [request.sampling_params for request in self.requests]

    @property
    def sampling_params(self) -> OmniDiffusionSamplingParams:
        """Sampling settings of the only request.

        Raises:
            AssertionError: there are several.
        """
        assert len(self.requests) == 1, f"{len(self.requests)} requests have no common sampling_params"
        return self.requests[0].sampling_params

    @property
    def request_id(self) -> str:
        """Identifier of the first request."""
        return self.requests[0].request_id

    @property
    def kv_sender_info(self) -> dict[str, Any] | None:
        """Transfer metadata of the first request."""
        return self.requests[0].kv_sender_info

    def is_dummy_run(self) -> bool:
        """Whether this is the engine's warm-up."""
        return self.requests[0].is_dummy_run()

    def get(self, request_id: str) -> OmniDiffusionRequest | None:
        """Return the request of that identifier, if it is here."""
        return next((request for request in self.requests if request.request_id == request_id), None)
