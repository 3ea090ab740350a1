"""What packages for FlowGRPO share: denoiser calls from rollout to training, steps with log-probs, weights, LoRA.

Packages beside this one import it. It registers nothing, and importing it imports none of its modules.
"""

VERSION = 12
LOCAL = ""  # the name of a version with changes of your own, which omni-scaffold then leaves alone: "lab.1"
__version__ = f"{VERSION}+{LOCAL}" if LOCAL else str(VERSION)
