"""The rollout engine's side of a key map, read from vllm-omni's text: where weights and LoRA adapters end up."""

from scaffold.remap.engine.engine_proof import EngineProof, prove_engine
from scaffold.remap.engine.lora_proof import LoraProof, prove_lora

__all__ = ["EngineProof", "LoraProof", "prove_engine", "prove_lora"]
