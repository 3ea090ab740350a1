"""What packages for FlowGRPO share: denoiser calls from rollout to training, steps with log-probs, weights, LoRA.

Packages beside this one import it. It registers nothing, and importing it imports none of its modules.
"""

VERSION = 5
