import pytest

from scaffold.errors import ScaffoldError
from scaffold.render import derive_names
from scaffold.spec.sections.package import spelled_like


def test_all_names_follow_from_the_model() -> None:
    names = derive_names("bagel_scaffold")
    assert names.package == "bagel_scaffold_flow_grpo"
    assert names.prefix == "BagelScaffold"
    assert names.architecture == "OmniBagelScaffoldForConditionalGeneration"


@pytest.mark.parametrize(("model", "prefix"), [("sd3", "Sd3"), ("a_1_b", "A1B"), ("x" * 64, "X" + "x" * 63)])
def test_prefix_is_camel_case(model: str, prefix: str) -> None:
    assert derive_names(model).prefix == prefix


@pytest.mark.parametrize(
    ("model", "key", "architecture"),
    [
        ("omnigen2", "OmniGen2Pipeline", "OmniGen2ForConditionalGeneration"),
        ("omnigen2_edit", "OmniGen2Pipeline", "OmniGen2EditForConditionalGeneration"),
        ("bagel", "BagelPipeline", "OmniBagelForConditionalGeneration"),
        ("mine", "BagelPipeline", "OmniMineForConditionalGeneration"),
        ("sd3", None, "OmniSd3ForConditionalGeneration"),
    ],
)
def test_classes_are_spelled_like_the_pipeline_and_omni_stands_once(
    model: str, key: str | None, architecture: str
) -> None:
    names = derive_names(model)
    assert names.architecture.replace(names.prefix, spelled_like(names.prefix, key)) == architecture


HOSTILE = [
    "",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "/etc",
    "Bagel",
    "bagel-7b",
    "7b",
    "_x",
    "class",
    "a b",
    "a\nb",
    "a\0b",
    "ünï",
    "x" * 65,
    "{{ 7 * 7 }}",
    "a;b",
    "$(id)",
    "bagel\n",
]


@pytest.mark.parametrize("model", HOSTILE)
def test_hostile_names_are_refused_in_one_line(model: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        derive_names(model)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.line
    assert len(caught.value.line) < 200
