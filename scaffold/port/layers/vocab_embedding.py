"""``VocabParallelEmbedding``: a plain embedding."""

from scaffold.port.layer import Arguments, Built, Site
from scaffold.port.layers.linear import needed

NAMES = ("VocabParallelEmbedding",)
PARAMETERS = (
    "num_embeddings", "embedding_dim", "params_dtype", "org_num_embeddings", "padding_size", "quant_config", "prefix",
)  # fmt: skip


def build(arguments: Arguments, site: Site) -> Built:
    """Return the plain embedding; the engine's padding of the vocabulary is not part of the checkpoint."""
    rows, columns = needed(arguments.bind(PARAMETERS), ("num_embeddings", "embedding_dim"))
    return Built(((None, f"nn.Embedding({rows}, {columns})"),))
