"""A row of the key table matches no key of the checkpoint.

A rename that fits nothing was written for another release of the checkpoint, or with a typing error. The keys that it
was meant for go another way: a more general row takes them to a wrong name, or they are left over.

    ("languge_model.model.", "")        # the checkpoint's keys begin with language_model.model.

Instead: remove the row, or correct it. ``omni-scaffold remap`` shows which keys each row takes.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.key_tables import folded, key_tables, recorded_keys, renamed
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC401"
NAME = "dead-rename-rule"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 20")
APPLIES = Applies(non_diffusers=True)
HELP = "remove the row, or correct it"


def check(package: Package) -> Hits:
    """Compare the rows with the keys that ``scaffold.toml`` records; without it nothing is known of the checkpoint."""
    keys = recorded_keys(package)
    if keys is None:
        return
    tables = key_tables(package)
    names = [folded(key) for key in (*keys.kept, *keys.dropped)]
    deciding = [renamed(tables, key) for key in keys.kept]
    for table in tables:
        for row in table.rows:
            source = folded(row.source)
            fits = [name for name in names if name.startswith(source) or source.startswith(name)]
            if not fits:
                yield Hit(table.file, row.source_node, f"no key of the checkpoint begins with {row.source!r}")
            elif not table.ignores and row not in deciding and all(name in keys.kept for name in fits):
                text = f"every key that begins with {row.source!r} is taken by a longer row"
                yield Hit(table.file, row.source_node, text)


FAILING = (
    Example(
        "a typing error",
        spec=(
            "[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.weight"\ntarget = "layers.{0..1}.self_attn.q_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.bias"\ntarget = "layers.{0..1}.self_attn.q_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.weight"\ntarget = "layers.{0..1}.self_attn.k_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.bias"\ntarget = "layers.{0..1}.self_attn.k_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.weight"\ntarget = "layers.{0..1}.self_attn.v_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.bias"\ntarget = "layers.{0..1}.self_attn.v_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj.weight"\ntarget = "layers.{0..1}.self_attn.o_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.gate_proj.weight"\ntarget = "layers.{0..1}.mlp.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.up_proj.weight"\ntarget = "layers.{0..1}.mlp.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.down_proj.weight"\ntarget = "layers.{0..1}.mlp.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm.weight"\ntarget = "layers.{0..1}.input_layernorm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.o_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.gate_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.up_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.down_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm_gen.weight"\ntarget = "layers.{0..1}.input_layernorm_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.embed_tokens.weight"\ntarget = "embed_tokens.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.norm.weight"\ntarget = "norm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.weight"\ntarget = "vae2llm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.bias"\ntarget = "vae2llm.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.weight"\ntarget = "llm2vae.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.bias"\ntarget = "llm2vae.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.weight"\ntarget = "time_embedder.mlp.0.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.bias"\ntarget = "time_embedder.mlp.0.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.weight"\ntarget = "time_embedder.mlp.2.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.bias"\ntarget = "time_embedder.mlp.2.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "latent_pos_embed.weight"\ntarget = "latent_pos_embed.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.lm_head."\ntarget = ""\n'
            "\n"
        ),
        model=('"language_model.model."', '«"languge_model.model."»'),
    ),
)
PASSING = (
    Example(
        "every row has its keys",
        spec=(
            "[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.weight"\ntarget = "layers.{0..1}.self_attn.q_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.bias"\ntarget = "layers.{0..1}.self_attn.q_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.weight"\ntarget = "layers.{0..1}.self_attn.k_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.bias"\ntarget = "layers.{0..1}.self_attn.k_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.weight"\ntarget = "layers.{0..1}.self_attn.v_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.bias"\ntarget = "layers.{0..1}.self_attn.v_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj.weight"\ntarget = "layers.{0..1}.self_attn.o_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.gate_proj.weight"\ntarget = "layers.{0..1}.mlp.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.up_proj.weight"\ntarget = "layers.{0..1}.mlp.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.down_proj.weight"\ntarget = "layers.{0..1}.mlp.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm.weight"\ntarget = "layers.{0..1}.input_layernorm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.o_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.gate_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.up_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.down_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm_gen.weight"\ntarget = "layers.{0..1}.input_layernorm_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.embed_tokens.weight"\ntarget = "embed_tokens.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.norm.weight"\ntarget = "norm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.weight"\ntarget = "vae2llm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.bias"\ntarget = "vae2llm.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.weight"\ntarget = "llm2vae.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.bias"\ntarget = "llm2vae.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.weight"\ntarget = "time_embedder.mlp.0.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.bias"\ntarget = "time_embedder.mlp.0.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.weight"\ntarget = "time_embedder.mlp.2.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.bias"\ntarget = "time_embedder.mlp.2.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "latent_pos_embed.weight"\ntarget = "latent_pos_embed.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.lm_head."\ntarget = ""\n'
            "\n"
        ),
    ),
    Example("nothing is known of the checkpoint", model=('("language_model.model', '("language.model')),
)
FAILING = (
    Example(
        "a typing error",
        spec=(
            "[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.weight"\ntarget = "layers.{0..1}.self_attn.q_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.bias"\ntarget = "layers.{0..1}.self_attn.q_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.weight"\ntarget = "layers.{0..1}.self_attn.k_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.bias"\ntarget = "layers.{0..1}.self_attn.k_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.weight"\ntarget = "layers.{0..1}.self_attn.v_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.bias"\ntarget = "layers.{0..1}.self_attn.v_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj.weight"\ntarget = "layers.{0..1}.self_attn.o_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.gate_proj.weight"\ntarget = "layers.{0..1}.mlp.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.up_proj.weight"\ntarget = "layers.{0..1}.mlp.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.down_proj.weight"\ntarget = "layers.{0..1}.mlp.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm.weight"\ntarget = "layers.{0..1}.input_layernorm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.o_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.gate_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.up_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.down_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm_gen.weight"\ntarget = "layers.{0..1}.input_layernorm_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.embed_tokens.weight"\ntarget = "embed_tokens.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.norm.weight"\ntarget = "norm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.weight"\ntarget = "vae2llm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.bias"\ntarget = "vae2llm.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.weight"\ntarget = "llm2vae.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.bias"\ntarget = "llm2vae.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.weight"\ntarget = "time_embedder.mlp.0.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.bias"\ntarget = "time_embedder.mlp.0.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.weight"\ntarget = "time_embedder.mlp.2.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.bias"\ntarget = "time_embedder.mlp.2.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "latent_pos_embed.weight"\ntarget = "latent_pos_embed.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.lm_head."\ntarget = ""\n'
            "\n"
        ),
        model=('"language_model.model."', '«"languge_model.model."»'),
    ),
)
PASSING = (
    Example(
        "every row has its keys",
        spec=(
            "[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.weight"\ntarget = "layers.{0..1}.self_attn.q_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj.bias"\ntarget = "layers.{0..1}.self_attn.q_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.weight"\ntarget = "layers.{0..1}.self_attn.k_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj.bias"\ntarget = "layers.{0..1}.self_attn.k_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.weight"\ntarget = "layers.{0..1}.self_attn.v_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj.bias"\ntarget = "layers.{0..1}.self_attn.v_proj.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj.weight"\ntarget = "layers.{0..1}.self_attn.o_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.gate_proj.weight"\ntarget = "layers.{0..1}.mlp.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.up_proj.weight"\ntarget = "layers.{0..1}.mlp.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp.down_proj.weight"\ntarget = "layers.{0..1}.mlp.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm.weight"\ntarget = "layers.{0..1}.input_layernorm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.q_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.q_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.k_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.k_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.v_proj_gen.bias"\ntarget = "layers.{0..1}.self_attn.v_proj_gen.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.self_attn.o_proj_gen.weight"\ntarget = "layers.{0..1}.self_attn.o_proj_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.gate_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.gate_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.up_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.up_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.mlp_gen.down_proj.weight"\ntarget = "layers.{0..1}.mlp_gen.down_proj.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.layers.{0..1}.input_layernorm_gen.weight"\ntarget = "layers.{0..1}.input_layernorm_gen.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.embed_tokens.weight"\ntarget = "embed_tokens.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.model.norm.weight"\ntarget = "norm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.weight"\ntarget = "vae2llm.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "vae2llm.bias"\ntarget = "vae2llm.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.weight"\ntarget = "llm2vae.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "llm2vae.bias"\ntarget = "llm2vae.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.weight"\ntarget = "time_embedder.mlp.0.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.0.bias"\ntarget = "time_embedder.mlp.0.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.weight"\ntarget = "time_embedder.mlp.2.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "time_embedder.mlp.2.bias"\ntarget = "time_embedder.mlp.2.bias"\n'
            "\n[[checkpoint.table]]\n"
            'source = "latent_pos_embed.weight"\ntarget = "latent_pos_embed.weight"\n'
            "\n[[checkpoint.table]]\n"
            'source = "language_model.lm_head."\ntarget = ""\n'
            "\n"
        ),
    ),
    Example("nothing is known of the checkpoint", model=('("language_model.model', '("language.model')),
)
