"""The section of the noise levels: what it may bring into source text, and the module of a ported scheduler."""

from __future__ import annotations

import ast

import pytest

from scaffold.errors import ScaffoldError
from scaffold.grade.established import Established
from scaffold.grade.noise_levels import noise_levels
from scaffold.grade.ported_spec import build_ported_spec
from scaffold.grade.rendering import is_plain, validate_ported
from scaffold.grade.scheduler_module import late_imports
from scaffold.inspect import inspect_pipeline
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate


@pytest.mark.parametrize(
    "text",
    [
        "1 - scheduler.timesteps",
        "scheduler.sigmas[:-1]",
        "np.linspace(1.0, 1 / num_inference_steps, num_inference_steps)",
        "setting(model_path, 'config.json', ['defaults', 'sway'], -1.0) * torch.cos(math.pi / 2)",
        "latent_size[0] // 2 * scheduler.config.get('max_shift', 1.15)",
    ],
)
def test_arithmetic_is_let_through(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "torch.load('x')",
        "scheduler.__class__",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "1; 2",
        "f'{model_path}'",
        "",
        None,
        3,
    ],
)
def test_anything_else_is_not(text: object) -> None:
    assert not is_plain(text)


@pytest.mark.upstream
@pytest.mark.parametrize("key", ["asked", "levels", "kind"])
def test_a_spec_with_code_in_it_is_refused(key: str) -> None:
    source = locate("0.30.0")
    request = SpecRequest(inspect_pipeline(source, "OmniGen2Pipeline"), derive_names("omnigen2"), default_profile())
    spec = build_ported_spec(request, None, None, "no denoiser", source).as_written()
    validate_ported(spec)
    spec.sections["levels"][key] = [{"name": "n", "value": "exit()"}] if key == "asked" else "exit()"
    with pytest.raises(ScaffoldError, match=f"levels.{key}"):
        validate_ported(spec)


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("version", "key", "kind"),
    [
        ("0.30.0", "OmniGen2Pipeline", "object"),
        ("0.30.0", "Pi0Pipeline", "turn"),
        # The number of its steps is a setting of the checkpoint, no request's.
        ("0.30.0", "InternVLAA1Pipeline", None),
        ("0.30.0", "AuKPipeline", "vector"),
        ("0.30.0", "LancePipeline", "line"),
        # It tells its model the middle of each step, which is not where the sample stands.
        ("0.27.0rc1", "SoulXSingerPipeline", None),
        # An option of the engine chooses between two schedules, one of which counts the steps that are asked for.
        ("0.30.0", "LongCatVideoAvatarPipeline", "object"),
    ],
)
def test_kind_of_levels(version: str, key: str, kind: str | None) -> None:
    section = noise_levels(Established(inspect_pipeline(locate(version), key), None))
    assert section["kind"] == kind


def test_a_library_that_may_be_absent_is_imported_where_it_is_used() -> None:
    text = late_imports(
        "import math\nimport scipy\nimport torch\n\n\nclass Scheduler:\n    def bend(self, x):\n"
        '        """Bend."""\n        return scipy.stats.beta.ppf(x)\n\n'
        "    def keep(self, x):\n        return math.exp(x)\n"
    )
    tree = ast.parse(text)
    assert [n.names[0].name for n in tree.body if isinstance(n, ast.Import)] == ["math", "torch"]
    bend, keep = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    assert [n.names[0].name for n in ast.walk(bend) if isinstance(n, ast.Import)] == ["scipy.stats"]
    assert not [n for n in ast.walk(keep) if isinstance(n, ast.Import)]
