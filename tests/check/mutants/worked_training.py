"""Formulas of the training side that look right: schedule, guidance, positions, the branch without the prompt."""

from mutants.edit import text
from mutants.mutant import COMMON, TRAINING, mutant

_SHIFT = "return shift * t / (1 + (shift - 1) * t)"
_TIMES = "scheduler.timesteps = scheduler.sigmas[:-1].clone()"
_GLOBAL = 'if renorm == "global":\n        guided = _renormed(guided, conditional, (1, 2), minimum)'
_CHANNEL = 'if renorm == "channel":\n        guided = _renormed(guided, conditional, (-1,), minimum)'
_RATIO = "(target / (norm + 1e-08)).clamp(min=minimum, max=1.0)"
_SIDE = "[:, None] * config.max_latent_size\n"
_NEGATIVE = '{**shared, "text_token_ids": None, "text_attention_mask": None}'
_IF = '        if guidance["cfg_text_scale"] > 1.0:\n'
_INSIDE = (
    '        low, high = guidance["cfg_interval"]\n'
    "        inside = (timesteps[:, step] > low) & (timesteps[:, step] <= high)\n"
)

MUTANTS = [
    mutant(
        "shift solved for the other side",
        ("T3",),
        "223",
        text(COMMON, _SHIFT, "return t / (shift - (shift - 1) * t)"),
    ),
    mutant("shift without its minus one", ("T3",), "223", text(COMMON, _SHIFT, "return shift * t / (1 + shift * t)")),
    mutant("shift as a power", ("T3",), "223", text(COMMON, _SHIFT, "return t**shift")),
    mutant(
        "shift of one minus the level",
        ("T3",),
        "223",
        text(COMMON, _SHIFT, "return 1 - shift * (1 - t) / (1 + (shift - 1) * (1 - t))"),
    ),
    mutant(
        "timesteps with the terminal level",
        ("T3", 44),
        "223",
        text(COMMON, _TIMES, "scheduler.timesteps = scheduler.sigmas.clone()"),
    ),
    mutant(
        "timesteps in thousandths again",
        ("T3", 44),
        "223",
        text(COMMON, _TIMES, "scheduler.timesteps = scheduler.sigmas[:-1] * scheduler.config.num_train_timesteps"),
    ),
    mutant(
        "timesteps one step ahead", ("T3",), "223", text(COMMON, _TIMES, "scheduler.timesteps = scheduler.sigmas[1:]")
    ),
    mutant("whole norm taken by token", ("T5",), "228", text(TRAINING, _GLOBAL, _GLOBAL.replace("(1, 2)", "(-1,)"))),
    mutant("norm by channel over tokens", ("T5",), "228", text(TRAINING, _CHANNEL, _CHANNEL.replace("(-1,)", "(1,)"))),
    mutant(
        "renormalised to the branch without",
        ("T5",),
        "228",
        text(TRAINING, _GLOBAL, _GLOBAL.replace("conditional", "unconditional")),
    ),
    mutant(
        "ratio of the norms turned round",
        ("T5",),
        "228",
        text(TRAINING, _RATIO, _RATIO.replace("(target / (norm ", "(norm / (target ")),
    ),
    mutant("root of the ratio", ("T5",), "228", text(TRAINING, _RATIO, _RATIO.replace(".clamp", ".sqrt().clamp"))),
    mutant("least factor not kept", ("T5",), "228 134", text(TRAINING, _RATIO, _RATIO.replace("minimum", "0.0"))),
    mutant(
        "a renormalisation that is never chosen",
        ("T5",),
        "228",
        text(TRAINING, _CHANNEL, _CHANNEL.replace('if renorm == "channel"', 'elif renorm == "text_channel"')),
    ),
    mutant(
        "mean in place of the norm",
        ("T5",),
        "228",
        text(
            TRAINING,
            "torch.linalg.vector_norm(guided, dim=dims, keepdim=True)",
            "guided.abs().mean(dim=dims, keepdim=True)",
        ),
    ),
    mutant(
        "interval counted from the other end",
        ("T5",),
        "228",
        text(
            TRAINING,
            "active = (sigma > low) & (sigma <= high)",
            "active = (1 - sigma > low) & (1 - sigma <= high)",
        ),
    ),
    mutant(
        "outside of the interval without the prompt",
        ("T5",),
        "228",
        text(
            TRAINING,
            "torch.where(active.view(-1, 1, 1), guided, conditional)",
            "torch.where(active.view(-1, 1, 1), guided, unconditional)",
        ),
    ),
    mutant(
        "any sample guides them all",
        ("T5",),
        "228",
        text(TRAINING, "torch.where(active.view(-1, 1, 1), guided", "torch.where(active.any(), guided"),
    ),
    mutant(
        "interval's ends exchanged on the way",
        ("T5",),
        "228",
        text(COMMON, "(float(interval[0]), float(interval[1]))", "(float(interval[1]), float(interval[0]))"),
    ),
    mutant("rows one image apart", ("T4", "M7"), "231", text(TRAINING, _SIDE, "[:, None] * columns\n")),
    mutant("rows as far apart as rows", ("T4", "M7"), "231", text(TRAINING, _SIDE, "[:, None] * rows\n")),
    mutant(
        "rows from the width",
        ("T4",),
        "231",
        text(TRAINING, "rows = model_config.pipeline.height //", "rows = model_config.pipeline.width //"),
        text(TRAINING, "columns = model_config.pipeline.width //", "columns = model_config.pipeline.height //"),
    ),
    mutant("grid walked by columns", ("T4",), "231", text(TRAINING, "grid.flatten()", "grid.T.flatten()")),
    mutant("grid from the bottom", ("T4",), "231", text(TRAINING, "grid.flatten()", "grid.flip(0).flatten()")),
    mutant(
        "padding for no text",
        ("T4",),
        "232",
        text(TRAINING, _NEGATIVE, '{**shared, "text_token_ids": torch.zeros_like(ids), "text_attention_mask": mask}'),
    ),
    mutant(
        "a blank for no text",
        ("T4",),
        "232",
        text(
            TRAINING,
            _NEGATIVE,
            '{**shared, "text_token_ids": ids.new_full((ids.shape[0], 1), 220), "text_attention_mask": None}',
        ),
    ),
    mutant(
        "prompt without its mask for no text",
        ("T4",),
        "232 221",
        text(TRAINING, _NEGATIVE, '{**conditional, "text_attention_mask": None}'),
    ),
    mutant(
        "branch left out by value",
        ("T5", 42),
        "233",
        text(TRAINING, _IF, _INSIDE + '        if guidance["cfg_text_scale"] > 1.0 and inside.any():\n'),
    ),
    mutant(
        "branch left out where all are outside",
        ("T5", 42),
        "233",
        text(TRAINING, _IF, _INSIDE + '        if guidance["cfg_text_scale"] > 1.0 and not torch.all(~inside):\n'),
    ),
    mutant(
        "branch left out at random",
        ("T5",),
        "233",
        text(TRAINING, _IF, '        if guidance["cfg_text_scale"] > 1.0 and torch.rand(()).item() > 0.1:\n'),
    ),
]
