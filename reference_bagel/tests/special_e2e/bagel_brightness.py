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
"""Reward of the smoke test of BAGEL-7B-MoT: how bright a picture is.

It needs no model, and a few updates raise it where learning works.
"""

import torch


def compute_score(data_source=None, solution_image=None, ground_truth=None, extra_info=None, **kwargs) -> float:
    """Mean pixel in [0, 1] of ``solution_image``: ``(C, H, W)``, of a video ``(T, C, H, W)``; uint8, or float in [0,
    1].
    """
    pixels = torch.as_tensor(solution_image)
    return pixels.float().mean().item() / (1.0 if pixels.is_floating_point() else 255.0)
