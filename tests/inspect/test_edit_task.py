"""What becomes of the images that a request brings, and in which ways such a request is guided."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
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
OF_THREE = (
    "unconditional[0] + guidance['image_scale'] * (unconditional[1] - unconditional[0])"
    " + guidance['guidance_scale'] * (conditional - unconditional[1])"
)
OF_TEXT = "unconditional[0] + guidance['guidance_scale'] * (conditional - unconditional[0])"
OF_PICTURE = "unconditional[0] + guidance['image_scale'] * (conditional - unconditional[0])"


def seen(root: Path, *ways: str, task: str | None = EDIT) -> Report:
    turn = textwrap.indent("".join(way.strip("\n") + "\n" for way in ways) + STEP, " " * 4)
    return look(root, READ + turn, before=BEFORE, init=INIT, task=task)


@pytest.mark.parametrize(
    ("ways", "text"),
    [
        ((THREE, TEXT, NONE), f"{OF_THREE} if len(unconditional) == 2 else {OF_TEXT}"),
        (
            (THREE, TEXT, PICTURE, NONE),
            f"{OF_THREE} if len(unconditional) == 2"
            f" else {OF_TEXT} if guidance['guidance_scale'] > 1.0 else {OF_PICTURE}",
        ),
        (("if scale > 1.0:" + TEXT.partition(":")[2], NONE), OF_TEXT.replace("[0]", "")),
    ],
)
def test_every_way_is_in_the_expression(tmp_path: Path, ways: tuple[str, ...], text: str) -> None:
    found = seen(tmp_path, *ways)
    combination = found.value("detail.cfg.combination")
    assert combination["text"] == found.value("edit.guidance") == text
    assert combination["unconditional"] == (2 if THREE in ways else 1)
    assert combination.get("fewest") == (1 if THREE in ways else None)
    assert combination["neutral"] == 1.0
    assert found.fact("answers.edit.guidance").evidence


def test_words_alone_have_one_way_and_no_answer_of_edits(tmp_path: Path) -> None:
    found = seen(tmp_path, THREE, TEXT, PICTURE, NONE, task=None)
    assert not [key for key in found.facts if key.startswith("answers.edit")]
    assert "fewest" not in found.value("detail.cfg.combination")
    assert found.task is None


@pytest.mark.parametrize(
    "wrong",
    [
        TEXT.replace("u + scale * (c - u)", "u + scale * (c - u) + 0.1 * x"),  # the sample takes part
        TEXT.replace("u + scale * (c - u)", "scale * c"),  # predictions that agree are not left as they are
        TEXT.replace("u + scale * (c - u)", "u + scale * (c - u).sort()"),
    ],
)
def test_one_way_that_is_not_understood_leaves_all_unknown(tmp_path: Path, wrong: str) -> None:
    found = seen(tmp_path, THREE, wrong, NONE)
    assert found.fact("detail.cfg.combination").confidence == "unknown"
    assert found.fact("answers.edit.guidance").confidence == "unknown"


def test_two_ways_of_as_many_predictions_need_a_setting_between_them(tmp_path: Path) -> None:
    other = "elif picture is not None:\n    u = self.net(x, sigmas[i], cond, None)\n    v = u + 2.0 * (c - u)\n"
    first = "if picture is None and len(steps_of(params)) > 3:" + TEXT.partition(":")[2]
    found = look(
        tmp_path,
        READ + textwrap.indent("".join((first.strip("\n") + "\n", other, NONE.strip("\n") + "\n", STEP)), " " * 4),
        before=BEFORE + "\n\ndef steps_of(params):\n    return params.extra_args.get('steps')\n",
        init=INIT,
        task=EDIT,
    )
    assert found.fact("detail.cfg.combination").confidence == "unknown"


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
