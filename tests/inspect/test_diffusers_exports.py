"""The table of what releases of diffusers export is what its generator reads from their wheels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scaffold.inspect
from scaffold.inspect.diffusers_exports import additions, main, read_exports
from scaffold.upstream.source import FolderSource

TABLE = Path(scaffold.inspect.__path__[0]) / "diffusers_exports.json"


@pytest.mark.upstream
def test_the_table_is_what_the_generator_writes(capsys: pytest.CaptureFixture[str]) -> None:
    written = TABLE.read_text(encoding="utf-8")
    main(list(json.loads(written)))
    assert capsys.readouterr().out == written


def test_names_that_are_assigned_listed_or_extended_are_read(tmp_path: Path) -> None:
    package = tmp_path / "diffusers"
    (package / "models").mkdir(parents=True)
    (package / "models" / "__init__.py").write_text(
        '_import_structure = {}\n_import_structure["transformers.a"] = ["ADenoiser"]\n'
        '_import_structure["unets.b"] = ["BDenoiser"]\n_import_structure["autoencoders.c"] = ["CCodec"]\n'
    )
    (package / "__init__.py").write_text(
        '_import_structure = {"utils": ["is_available"], "pipelines": ["FirstPipeline"]}\n'
        '_import_structure["pipelines"].extend(["SecondPipeline"])\n'
    )
    exports = read_exports(FolderSource(tmp_path, "1.0", "1.0"))
    assert exports == {"models": ["ADenoiser", "BDenoiser"], "pipelines": ["FirstPipeline", "SecondPipeline"]}
    later = {"models": ["ADenoiser", "Later"], "pipelines": ["FirstPipeline"]}
    assert additions([("1", exports), ("2", later)])["2"] == {"models": ["Later"], "pipelines": []}
