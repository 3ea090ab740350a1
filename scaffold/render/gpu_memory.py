"""GPU memory of a training step of the generation module, counted from its sizes.

A step is forward and backward of every branch of guidance over one micro-batch, with LoRA, in bf16. What is counted is
what the templates' layers leave for the backward pass; `benchmarks/train_step.py` holds it against a GPU's peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 2**30
BF16, FLOAT32 = 2, 4
FREE = 0.1  # of a card, for fragments, kernels and what NCCL takes


@dataclass(frozen=True)
class TrainingStep:
    """Sizes of the module, and the tokens that each branch has over the whole micro-batch.

    Attributes:
        sizes: the keys of a spec's ``[architecture]``.
        branches: tokens of each branch: samples times latents, text and markers.
        padded: tokens of the branches with text of unequal length, whose keys are kept for each head of the queries.
    """

    sizes: Mapping[str, Any]
    branches: tuple[int, ...]
    padded: int = 0

    @property
    def _layers(self) -> int:
        return int(self.sizes["num_hidden_layers"])

    @property
    def _widths(self) -> tuple[int, int, int, int, int]:
        """Channels of the residual, of queries, of keys, of the feed-forward block; products that its entry makes."""
        names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
        hidden, queries, keys, head, inner = (int(self.sizes[name]) for name in names)
        return hidden, queries * head, keys * head, inner, 2 if self.sizes["mlp"] == "swiglu" else 1

    @property
    def layer_weights(self) -> int:
        """Parameters of the matrices of one layer and one expert."""
        hidden, queries, keys, inner, entries = self._widths
        return 2 * hidden * (queries + keys) + (entries + 1) * hidden * inner

    def kept(self, layers: int) -> int:
        """Bytes that so many layers take which keep their products, beside the input that every layer keeps.

        Three tensors as wide as the residual (both norms' outputs and the residual between them), queries and keys
        before and after their norm, values, attention's output, and the products that enter the feed-forward block.
        """
        hidden, queries, keys, inner, entries = self._widths
        turned = self.sizes["image_position"] != "text_length"
        # What a norm is given is kept once more, twice as wide where it is turned afterwards in float32.
        norms = (2 if turned and self.sizes["rotary_float32"] else 1) if self.sizes["qk_norm"] else 0
        channels = 3 * hidden + (2 + norms) * (queries + keys) + entries * inner
        return BF16 * layers * (channels * sum(self.branches) + 2 * (queries - keys) * self.padded)

    def activations(self, checkpointed: int) -> int:
        """Bytes at the peak, without weights, where the first ``checkpointed`` layers are recomputed whole.

        Backward frees the layers that kept their products before it recomputes one: whichever is more is the peak. In
        the feed-forward block it holds the activation, its product, and two gradients of that width.
        """
        hidden, _, _, inner, _ = self._widths
        widest = max(self.branches)
        inputs = BF16 * self._layers * hidden * sum(self.branches)
        inside = 4 * BF16 * inner * widest
        one = self.kept(1) * widest // sum(self.branches) + inside
        return inputs + max(one if checkpointed else 0, self.kept(self._layers - checkpointed) + inside)

    def fewest_checkpointed(self, room: float) -> int | None:
        """Return the fewest layers, at least one, to recompute where activations have ``room`` bytes.

        None where not even all layers fit.
        """
        left = room - self.activations(0) + self.kept(self._layers)
        layers = max(1, self._layers - int(left // self.kept(1)))
        return layers if layers <= self._layers and self.activations(layers) <= room else None

    def static_bytes(self, gpus: int, rank: int) -> int:
        """Bytes on each GPU whatever the batch: FSDP2's shard, and the layer that it gathers with the next one.

        Base weights are in bf16; LoRA on the matrices of one expert, its gradients and AdamW's two moments in float32.
        """
        hidden, queries, keys, inner, entries = self._widths
        layers, experts = self._layers, 2 if self.sizes["experts"] else 1
        layer = BF16 * experts * self.layer_weights
        matrices = 2 * (hidden + queries) + 2 * (hidden + keys) + (entries + 1) * (hidden + inner)
        adapter = 4 * FLOAT32 * layers * rank * matrices
        whole = layers * layer + BF16 * int(self.sizes["vocab_size"]) * hidden + adapter
        return whole // gpus + (2 * layer if gpus > 1 else 0)


def memory_settings(architecture: Mapping[str, Any], sections: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the launch script says about ``enable_gradient_checkpointing``.

    None where a size is not known, or weights are not in bf16.

    Args:
        architecture: the spec's section of that name.
        sections: ``recipe``, ``latents``, ``lora`` and ``prompt`` of the spec.

    Returns:
        ``layers``; ``gib``, what a layer takes that is left alone; ``fits``, the fewest recomputed layers by the GiB
        of the card, None where not even all of them fit.
    """
    recipe, latents = sections["recipe"], sections["latents"]
    side = [recipe[name] // (latents["patch"] * latents["downsample"]) for name in ("height", "width")]
    image = side[0] * side[1] + 2
    text = recipe["max_prompt_length"]
    branches = (image + text, image + (text if sections["prompt"]["negative_text"] else 0))
    samples = recipe["micro_batch_size"]
    if recipe["model_dtype"] != "bfloat16":
        return None
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "head_dim", "vocab_size")
    if any(not isinstance(architecture[name], int) for name in (*sizes, "num_attention_heads", "num_key_value_heads")):
        return None
    step = TrainingStep(architecture, tuple(samples * tokens for tokens in branches), padded=samples * branches[0])
    static, layers = step.static_bytes(recipe["gpus"], sections["lora"]["rank"]), architecture["num_hidden_layers"]
    fits = {card: step.fewest_checkpointed((1 - FREE) * card * GIB - static) for card in (80, 96, 141)}
    return {"layers": layers, "gib": round(step.kept(1) / GIB, 1), "fits": fits}
