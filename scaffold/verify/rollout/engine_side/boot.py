"""Entry of the process inside the environment: ``python boot.py TASK``, ``--serve`` to run several tasks in forks, or
``--probe MODULE…`` to import modules.

Makes ``scaffold`` importable from where it lies. Its parent folder stays off the path: in an installed omni-scaffold
that folder holds another environment's libraries.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def introduce(name: str, folder: Path) -> None:
    """Import the package in ``folder`` as ``name``."""
    init = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{init} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    # The folder of this script would come first and serve its modules as if they were libraries.
    sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != Path(__file__).resolve().parent]
    introduce("scaffold", ROOT)
    from scaffold.verify.child.leftovers import die_with_parent

    die_with_parent()
    if sys.argv[1] == "--probe":
        from scaffold.verify.rollout.engine_side import settings

        settings.before_imports()
        for module in sys.argv[2:]:
            importlib.import_module(module)
        sys.exit(0)
    if sys.argv[1] == "--serve":
        from scaffold.verify.rollout.engine_side.server import serve

        serve(Path(__file__).resolve())
        sys.exit(0)
    from scaffold.verify.rollout.engine_side.main import main

    sys.exit(main(Path(sys.argv[1])))
