"""Values that are not what they look like: devices by number, dimensions, precisions, texts."""

from mutants.edit import text
from mutants.mutant import DATA, ROLLOUT, TRAINING, mutant

PADDED = "torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)"
TYPE = "sde_type=model_config.algo.sde_type,"
LEVEL = "noise_level=model_config.algo.noise_level,"
STEP = "            timestep=timesteps[:, step],\n"
SAMPLE = "        sample = sample.float()[None]\n"
OUTPUT = "model_output=model_output.float()[None],"
RECORD = "            self._latents.append(prev_sample)\n"
FIRST = "                self._latents.append(sample)\n"
TURN = 'return turn.partition("<|im_end|>")[0].strip()'
MUTANTS = [
    mutant("ids on device zero", (38,), "126", text(TRAINING, PADDED, PADDED.replace("(device)", "(0)"))),
    mutant("ids on device one", (38,), "126", text(TRAINING, PADDED, PADDED.replace("(device)", "(device=1)"))),
    mutant(
        "noise levels cut to thousandths",
        (33,),
        "124",
        text(TRAINING, STEP, "            timestep=torch.trunc(1000 * timesteps[:, step]) / 1000,\n"),
    ),
    mutant(
        "noise levels fixed to thousandths",
        (33,),
        "124",
        text(TRAINING, STEP, "            timestep=(timesteps[:, step] * 1000).fix() / 1000,\n"),
    ),
    mutant(
        "type of the process under another name",
        (7,),
        "211",
        text(TRAINING, TYPE, 'sde_type=getattr(model_config.algo, "sampler_type", "sde"),'),
    ),
    mutant(
        "noise level under another name",
        (7,),
        "211",
        text(TRAINING, LEVEL, 'noise_level=getattr(model_config.algo, "eta", 0.7),'),
    ),
    mutant(
        "batch dimension put last",
        ("R4", 6),
        "304",
        text(ROLLOUT, SAMPLE, "        sample = torch.atleast_3d(sample.float())\n"),
        text(ROLLOUT, OUTPUT, "model_output=torch.atleast_3d(model_output.float()),"),
    ),
    mutant(
        "trajectory without its batch",
        ("R4",),
        "304 321",
        text(ROLLOUT, FIRST, FIRST.replace("sample)", "sample[0])")),
        text(ROLLOUT, RECORD, RECORD.replace("prev_sample)", "prev_sample[0])")),
    ),
    mutant(
        "trajectory squeezed",
        ("R4",),
        "304 321",
        text(ROLLOUT, FIRST, FIRST.replace("sample)", "sample.squeeze(0))")),
        text(ROLLOUT, RECORD, RECORD.replace("prev_sample)", "prev_sample.squeeze(0))")),
    ),
    mutant(
        "latents recorded as the model gives them",
        ("R6", 13),
        "315",
        text(ROLLOUT, RECORD, RECORD.replace("prev_sample)", "prev_sample.to(model_output.dtype))")),
    ),
    mutant(
        "latents recorded like the model's",
        ("R6", 13),
        "315",
        text(ROLLOUT, RECORD, RECORD.replace("prev_sample)", "prev_sample.type_as(model_output))")),
    ),
    mutant(
        "blanks of the prompt squeezed",
        ("R5", 31),
        "312",
        text(ROLLOUT, TURN, 'return " ".join(turn.partition("<|im_end|>")[0].split())'),
    ),
    mutant("user turn in small letters", ("R5", 31), "312", text(ROLLOUT, TURN, TURN + ".lower()")),
    mutant(
        "prompt ids filled up",
        ("D2",),
        "603",
        text(DATA, "    return ids\n", "    return ids + [tokenizer.pad_token_id] * (max_length - len(ids))\n"),
    ),
]
