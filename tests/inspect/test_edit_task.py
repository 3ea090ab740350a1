"""What becomes of the images that a request brings."""

from __future__ import annotations

import textwrap
from pathlib import Path

from synthetic import SIGMAS, look

from scaffold.inspect import EDIT, Report

BEFORE = """

class WithPicture(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x, t, cond, picture):
        return self.proj(x + t + cond if picture is None else x + t + cond + picture)
"""
INIT = "self.net = WithPicture()"
READ = (
    SIGMAS
    + """
shown = (prompt.get("multi_modal_data") or {}).get("image")
image_scale = params.extra_args.get("image_scale", 1.0)
picture = self.encode(shown) if shown is not None else None
empty = self.encode("")
for i in range(steps):
    c = self.net(x, sigmas[i], cond, picture)
"""
)
STEP = "x = x + (sigmas[i + 1] - sigmas[i]) * v\n"
THREE = """
if scale > 1.0 and image_scale > 1.0 and picture is not None:
    n = self.net(x, sigmas[i], empty, picture)
    u = self.net(x, sigmas[i], empty, None)
    v = u + image_scale * (n - u) + scale * (c - n)
"""
TEXT = """
elif scale > 1.0:
    u = self.net(x, sigmas[i], empty, picture)
    v = u + scale * (c - u)
"""
PICTURE = """
elif image_scale > 1.0 and picture is not None:
    u = self.net(x, sigmas[i], cond, None)
    v = u + image_scale * (c - u)
"""
NONE = """
else:
    v = c
"""


def seen(root: Path, *ways: str, task: str | None = EDIT) -> Report:
    turn = textwrap.indent("".join(way.strip("\n") + "\n" for way in ways) + STEP, " " * 4)
    return look(root, READ + turn, before=BEFORE, init=INIT, task=task)


def test_words_alone_have_no_answer_of_edits(tmp_path: Path) -> None:
    found = seen(tmp_path, THREE, TEXT, PICTURE, NONE, task=None)
    assert not [key for key in found.facts if key.startswith("answers.edit")]
    assert found.task is None


def test_images_are_conditions_where_they_reach_the_denoiser(tmp_path: Path) -> None:
    found = seen(tmp_path / "read", THREE, TEXT, NONE)
    assert found.value("edit.conditions") == ["picture"]
    assert found.fact("edit.conditions").evidence
    unused = READ.replace("self.encode(shown) if shown is not None else None", "None")
    turn = textwrap.indent("v = c\n" + STEP, " " * 4)
    found = look(tmp_path / "unused", unused + turn, before=BEFORE, init=INIT, task=EDIT)
    assert found.value("edit.conditions") == []


def test_what_is_made_ready_before_counts(tmp_path: Path) -> None:
    """A function that the registry names puts what it makes of the image under a key of the prompt."""
    ready = """

def get_ready(od_config: Options):
    def ready(request: Request):
        prompt = request.prompts[0]
        shown = (prompt.get("multi_modal_data") or {}).get("image")
        if shown is not None:
            prompt["made"] = {"picture": torch.as_tensor(shown)}
        return request

    return ready
"""
    read = READ.replace(
        '(prompt.get("multi_modal_data") or {}).get("image")', '(prompt.get("made") or {}).get("picture")'
    )
    turn = textwrap.indent("v = c\n" + STEP, " " * 4)
    modules = {
        "../../registry.py": """
_DIFFUSION_MODELS = {"MadeUpPipeline": ("made_up", "pipeline", "MadeUpPipeline")}
_DIFFUSION_PRE_PROCESS_FUNCS = {"MadeUpPipeline": "get_ready"}
"""
    }
    found = look(tmp_path / "ready", read + turn, before=BEFORE + ready, init=INIT, modules=modules, task=EDIT)
    assert found.value("edit.conditions") == ["picture"]
    found = look(tmp_path / "not", read + turn, before=BEFORE + ready, init=INIT, task=EDIT)
    assert found.value("edit.conditions") == []
