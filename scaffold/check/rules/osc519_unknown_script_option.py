"""A script is called with an option that it does not take, or without one that it needs.

``argparse`` ends the process with code 2 before anything is made. In a smoke test that is the first command; in a data
script that another one calls it shows only where the two meet.

    python3 tests/special_e2e/create_dummy_toy_data.py --save_dir "$DATA_DIR"      # it takes --local_save_dir

Instead: name the options as the script's parser does.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.model.shell import ShellScript
from scaffold.check.rule import Hit, Hits

ID = "OSC519"
NAME = "unknown-script-option"
SEVERITY = "error"
CHECKLIST = ("D2", "S1", "W3")
HELP = "give the option that the script takes"


def check(package: Package) -> Hits:
    """Compare options at calls of scripts of the tree with what the parsers of those take."""
    for script in package.scripts:
        yield from _of_shell(package, script)


def _options(file: PythonFile) -> tuple[set[str], set[str]] | None:
    """Return the options of a script and the required ones; None where the text does not tell."""
    known, required = {"--help"}, set()
    parsers = 0
    for call in file.index.nodes(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        parsers += name == "parse_args"
        if name in ("parse_known_args", "add_subparsers", "add_argument_group"):
            return None
        if name != "add_argument":
            continue
        flags = [file.value(value) for value in call.args]
        if not flags or not all(isinstance(flag, str) for flag in flags):
            return None
        known |= {str(flag) for flag in flags}
        needed = [item.value for item in call.keywords if item.arg == "required"]
        if needed and file.value(needed[0]) is True:
            required |= {str(flag) for flag in flags if str(flag).startswith("--")}
    return (known, required) if parsers == 1 and len(known) > 1 else None


def _of_shell(package: Package, script: ShellScript) -> Hits:
    words = script.words
    for at, word in enumerate(words):
        path = word.text.removeprefix("./")
        if not path.endswith(".py") or at == 0 or "python" not in words[at - 1].text:
            continue
        file = package.project.python(path)
        options = _options(file) if file is not None and file.problem is None else None
        if options is None:
            continue
        given: set[str] = set()
        line = word.span.line
        for other in words[at + 1 :]:
            if other.span.line > line and not script.lines[other.span.line - 2].rstrip().endswith("\\"):
                break
            flag = other.text.partition("=")[0]
            if flag.startswith("--"):
                given.add(flag)
                if not any(option.startswith(flag) for option in options[0]):
                    near = get_close_matches(flag, list(options[0]), n=1)
                    yield Hit(
                        script,
                        other.span,
                        f"{file.name if file else path} takes no {flag}",
                        f"write {near[0]}" if near else None,
                    )
            elif "$" in other.text and "@" in other.text:
                given |= options[1]
        for flag in sorted(options[1] - given):
            yield Hit(script, word.span, f"{file.name if file else path} needs {flag}", f"add {flag}")


FAILING = (
    Example(
        "another name",
        e2e=(
            "python3 tests",
            'python3 examples/flowgrpo_trainer/data_process/toy_ocr.py --model_path x «--save_dir» "$DATA_DIR"\n'
            "python3 tests",
        ),
    ),
    Example(
        "a required one is missing",
        e2e=(
            "python3 tests",
            ('python3 «examples/flowgrpo_trainer/data_process/toy_ocr.py» --output_dir "$DATA_DIR"\npython3 tests'),
        ),
    ),
)
PASSING = (
    Example(
        "as the script takes them",
        e2e=(
            "python3 tests",
            "python3 examples/flowgrpo_trainer/data_process/toy_ocr.py \\\n    --model_path x \\\n"
            '    --output_dir "$DATA_DIR"\n'
            "python3 tests",
        ),
    ),
)
