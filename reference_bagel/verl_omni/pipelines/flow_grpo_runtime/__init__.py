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
"""What packages for FlowGRPO share: denoiser calls from rollout to training, steps with log-probs, weights, LoRA.

Packages beside this one import it. It registers nothing, and importing it imports none of its modules.
"""

VERSION = 12
LOCAL = ""  # the name of a version with changes of your own, which omni-scaffold then leaves alone: "lab.1"
__version__ = f"{VERSION}+{LOCAL}" if LOCAL else str(VERSION)
