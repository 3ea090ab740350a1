"""One request to a pipeline."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from omni_scaffold_kit.profile import ACTIVE

from vllm_omni.inputs.data import OmniDiffusionSamplingParams, OmniPromptType

DUMMY_DIFFUSION_REQUEST_ID = "dummy_req_id"


class _Request:
    """Defaults that a request fills in, and so decides before any pipeline reads them."""

    sampling_params: OmniDiffusionSamplingParams
    request_id: str

    def _prompts(self) -> list[OmniPromptType]:
        raise NotImplementedError

    def __post_init__(self) -> None:
        if not isinstance(self.request_id, str) or not self.request_id:
            raise ValueError("OmniDiffusionRequest.request_id must be a non-empty string")
        params = self.sampling_params
        if params.generator is None and params.seed is None:
            params.seed = random.randint(0, 2**31 - 1)
        given = bool(params.guidance_scale) if ACTIVE.guidance_scale is not None else params.guidance_scale is not None
        params.guidance_scale_provided = params.guidance_scale_provided or given
        scale = params.guidance_scale if given and params.guidance_scale is not None else 1.0
        params.guidance_scale = scale
        if scale > 1.0 and any(isinstance(p, dict) and p.get("negative_prompt") for p in self._prompts()):
            params.do_classifier_free_guidance = True
        if params.guidance_scale_2 is None:
            params.guidance_scale_2 = scale

    def is_dummy_run(self) -> bool:
        """Whether this is the engine's warm-up."""
        return self.is_dummy_run_request_id(self.request_id)

    @classmethod
    def is_dummy_run_request_id(cls, request_id: str | None) -> bool:
        """Whether ``request_id`` is the warm-up's."""
        return request_id == DUMMY_DIFFUSION_REQUEST_ID


if ACTIVE.prompts_per_request == "one":

    @dataclass
    class OmniDiffusionRequest(_Request):
        """One prompt and its sampling settings; ``forward`` gets it inside a ``DiffusionRequestBatch``."""

        prompt: OmniPromptType
        sampling_params: OmniDiffusionSamplingParams
        request_id: str
        kv_sender_info: dict[str, Any] | None = None

        def _prompts(self) -> list[OmniPromptType]:
            return [self.prompt]

else:

    @dataclass
    class OmniDiffusionRequest(_Request):  # type: ignore[no-redef]
        """Prompts and sampling settings, handed to ``forward`` as they are."""

        prompts: list[OmniPromptType]
        sampling_params: OmniDiffusionSamplingParams
        request_id: str
        kv_sender_info: dict[str, Any] | None = None

        def _prompts(self) -> list[OmniPromptType]:
            return self.prompts
