"""Jinja filters that turn spec values into inert source text.

Every public function below that takes the value first is a filter of its own name. None of them guesses:
what has no faithful form in the language at hand raises ``ValueError``, which `render` reports with the
template's line.
"""

from __future__ import annotations

import keyword
import math
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scaffold.files.reading import read_text
from scaffold.files.resources import presets_root
from scaffold.render.code import expression, function, import_line, module
from scaffold.terminal.printable import printable, printable_lines

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN_YAML = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_/])?", re.ASCII)
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_WORDS = re.compile(r"[A-Za-z0-9_.,/ -]*", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:-]*", re.ASCII)
# What Markdown reads as markup: anywhere, beside a word, and where a wrapped line may begin.
_BLOCK_START = re.compile(r"(?<!\S)(?:[-+*#=~]+(?!\S)|>|~~~|<[A-Za-z!?/]|[0-9]+[.)](?!\S))")
_MARKUP = re.compile(rf"[\\`*\[\]<>|~&]|(?<![^\W_])_|_(?![^\W_])|{_BLOCK_START.pattern}", re.ASCII)
_PUNCTUATION = "\\`*[]<>|~&_-+#=:.)"
PACKAGES = ("diffusers", "transformers", "verl_omni", "vllm_omni")
"""What a value may have rendered code import."""
_TOML_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def py(value: Any) -> str:
    """Return ``value`` as a Python literal; dictionaries keep their order."""
    value = _defined(value)
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else f"float({float.__repr__(value)!r})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{py(k)}: {py(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(py, value)) + (",)" if len(value) == 1 else ")")
    if isinstance(value, list):
        return "[" + ", ".join(map(py, value)) + "]"
    raise ValueError(f"no Python literal for a {type(value).__name__}")


def long_py(value: Any, width: int = 100) -> str:
    """Return text as one Python literal of several pieces, none longer than about ``width``; short text stays one."""
    text = _defined(value)
    if not isinstance(text, str):
        raise ValueError(f"no text but a {type(text).__name__}")
    if len(py(text)) <= width:
        return py(text)
    pieces = [""]
    for word in re.split(r"(?<=\s)(?=\S)", text):
        if pieces[-1].endswith("\n") or len(py(pieces[-1] + word)) > width:
            pieces.append("")
        pieces[-1] += word
    return "(\n" + "\n".join(py(piece) for piece in pieces if piece) + "\n)"


def tuple_py(value: Any) -> str:
    """Return a list as a Python tuple literal, as constants of a module should be."""
    value = _defined(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"no tuple for a {type(value).__name__}")
    return py(tuple(value))


def sh(value: Any) -> str:
    """Return one shell word, single-quoted where needed."""
    value = _defined(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"no shell word for a {type(value).__name__}")
    text = str(value)
    if "\0" in text:
        raise ValueError("a shell word cannot hold a NUL character")
    return shlex.quote(text)


def yaml(value: Any) -> str:
    """Return ``value`` as one YAML 1.1 flow value; strings are quoted where another reading exists."""
    value = _defined(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if _PLAIN_YAML.fullmatch(value) and value.lower() not in _YAML_WORDS:
            return value
        return '"' + "".join(_escaped(c) for c in value) + '"'
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _yaml_float(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml(k)}: {yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(yaml, value)) + "]"
    raise ValueError(f"no YAML value for a {type(value).__name__}")


def toml(value: Any) -> str:
    """Return ``value`` as one TOML value on one line; None has no form in TOML."""
    value = _defined(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_escaped(c, hexadecimal=False) for c in value) + '"'
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f" {_toml_key(k)} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(toml, value)) + "]"
    raise ValueError(f"no TOML value for a {type(value).__name__}")


def comment(value: Any) -> str:
    """Return text that cannot end a one-line comment: one line, control characters escaped."""
    return printable(_defined(value))


def cell(value: Any) -> str:
    """Return text for a code span in a cell of a Markdown table: one line, nothing that ends cell or span."""
    return span(value).replace("|", "\\|")


def span(value: Any) -> str:
    """Return text for a code span of running Markdown text: one line, nothing that ends span or paragraph."""
    text = comment(value).replace("`", "'")
    # Where the line is wrapped inside the span, a word of it may begin a list or a block of HTML.
    return text.replace(" ", "\N{NO-BREAK SPACE}") if _BLOCK_START.search(text) else text


def prose(value: Any) -> str:
    """Return text for running Markdown text: one line, and its whole code spans are all the markup that it can make."""
    parts = comment(value).split("`")
    if len(parts) % 2 == 0 or any(not code or _BLOCK_START.search(code) for code in parts[1::2]):
        return _unmarked("`".join(parts))
    return "`".join(code if place % 2 else _unmarked(code) for place, code in enumerate(parts))


def words(value: Any) -> str:
    """Return ``value`` unchanged when it is a list of plain words, which no language that is rendered reads as more."""
    return _only(_WORDS, value, "plain words")


def path(value: Any) -> str:
    """Return ``value`` unchanged when it is a plain path, repository, place or date: one word that is not an option."""
    return _only(_PATH, value, "a plain path")


def zip_with(keys: Any, values: Any) -> list[tuple[Any, Any]]:
    """Return pairs of two lists of one length."""
    return list(zip(_defined(keys), _defined(values), strict=True))


def literal_pattern(value: Any) -> str:
    """Return the text that a rule's pattern without placeholders stands for; doubled braces are single ones."""
    return str(_defined(value)).replace("{{", "{").replace("}}", "}")


def patterned(rules: Any) -> bool:
    """Tell whether rules of a key map need more than prefixes and whole names: placeholders, splits or joins."""
    rules = _defined(rules)
    sides = [text for rule in rules for text in (rule.get("source", ""), rule.get("target") or "")]
    return parted(rules) or any("{" in text.replace("{{", "") for text in sides)


def parted(rules: Any) -> bool:
    """Tell whether rules of a key map take tensors apart or put them together."""
    return any(rule["op"] in ("split", "join") for rule in _defined(rules))


def plain_drops(rules: Any) -> list[Any]:
    """Return the drops of a key map whose source is one prefix or name, not one of each layer."""
    return [rule for rule in _defined(rules) if rule["op"] == "drop" and "{" not in rule["source"].replace("{{", "")]


def untargeted(linears: Any, targets: Any, said: Any = ()) -> list[str]:
    """Return the linear layers of lists of layers that neither a target nor a name in ``said`` is the end of."""
    ends = tuple(f".{name}" for name in (*targets, *said))
    inner = [name for name in linears or () if "*" in name and not name.endswith(ends)]
    return list(dict.fromkeys(name.rpartition("*.")[2] for name in inner))


def docstring(value: Any) -> str:
    """Return text that means itself between three double quotes."""
    text = str(_defined(value)).replace("\\", "\\\\")
    text = re.sub(r'"{2,}|^"|"$', lambda match: '\\"' * len(match.group()), text)
    return printable_lines(text)


def identifier(value: Any) -> str:
    """Return ``value`` unchanged when it is an ASCII identifier and no keyword."""
    value = _defined(value)
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value) or keyword.iskeyword(value):
        raise ValueError(f"{_shown(value)} is not a Python identifier")
    return value


def dotted(value: Any) -> str:
    """Return ``value`` unchanged when it is a dotted path of identifiers, such as a module name."""
    value = _defined(value)
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a dotted name")
    for part in value.split("."):
        identifier(part)
    return value


def imported(value: Any) -> str:
    """Return ``value`` unchanged when it is a public module, or a name of one, of the packages that code may import."""
    parts = dotted(value).split(".")
    if parts[0] not in PACKAGES or any(part.startswith("_") for part in parts):
        raise ValueError(f"{_shown(value)} is not a public name of {', '.join(PACKAGES)}")
    return str(value)


def own_import(value: Any, pipeline: Any = None) -> str:
    """Return ``value`` unchanged as `imported` does, or when it is a public module of a pipeline's own package.

    ``pipeline`` is the pipeline's module where ``value`` is another: both then lie in one package.
    """
    parts = dotted(value).split(".")
    if parts[0] in PACKAGES or (pipeline is not None and parts[0] != dotted(pipeline).partition(".")[0]):
        return imported(value)
    known = parts[0] in sys.stdlib_module_names or parts[0] in ("torch", "numpy", "vllm", "verl", "pip", "setuptools")
    if len(parts) < 2 or known or any(part.startswith("_") for part in parts):
        raise ValueError(f"{_shown(value)} is not a public module of a pipeline's own")
    return str(value)


def model_part(value: Any) -> str:
    """Return ``value`` unchanged when it is what a tiny checkpoint may construct.

    That is a class of transformers or diffusers, by its short name or in its module of a model, or a name of one of
    vllm-omni's models. Their functions start programs and fetch code; a class of a model does neither.
    """
    module, _, name = imported(value).rpartition(".")
    of_model = module.startswith(("transformers.models.", "diffusers.models.", "vllm_omni.diffusion.models."))
    if not (of_model or module in ("transformers", "diffusers")) or not (
        name[0].isupper() or module.startswith("vllm_omni.")
    ):
        raise ValueError(f"{_shown(value)} is not a class of transformers, diffusers or a model of vllm_omni")
    return str(value)


def recorded_checkpoint(value: Any) -> str:
    """Return the record of a tiny checkpoint, as JSON, by the registry key of its pipeline."""
    name = _only(_IDENTIFIER, value, "the registry key of a pipeline")
    return read_text(presets_root() / "tiny" / f"{name}.json")


def wrap(value: Any, width: int = 100, prefix: str = "") -> str:
    """Wrap each paragraph of the text to ``width`` columns, ``prefix`` of every line included."""
    wrapper = textwrap.TextWrapper(
        width=width, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False, break_on_hyphens=False
    )
    paragraphs = re.split(r"\n\s*\n", str(_defined(value)).strip())
    return f"\n{prefix.rstrip()}\n".join("\n".join(wrapper.wrap(paragraph)) for paragraph in paragraphs)


_SOURCE_TEXT = (py, tuple_py, long_py, sh, yaml, toml, comment, docstring, cell, span, prose, words, path, identifier,
                dotted, imported, own_import, model_part, expression, function, import_line, module,
                recorded_checkpoint)  # fmt: skip


def filters() -> dict[str, Callable[..., Any]]:
    """Return every filter by its name; what one of these makes of a value may be written as it is."""
    from scaffold.render.inert import keeping_inert, making_inert

    return {
        **{one.__name__: making_inert(one) for one in _SOURCE_TEXT},
        **{one.__name__: one for one in (literal_pattern, patterned, parted, plain_drops, untargeted, zip_with)},
        "wrap": keeping_inert(wrap),
    }


def _defined(value: Any) -> Any:
    from jinja2 import Undefined

    if isinstance(value, Undefined):
        str(value)  # StrictUndefined raises here and names the variable
        raise ValueError("the value is undefined")
    return value


def _only(pattern: re.Pattern[str], value: Any, wanted: str) -> str:
    value = _defined(value)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{_shown(value)} is not {wanted}")
    return value


def _unmarked(text: str) -> str:
    return _MARKUP.sub(lambda match: "".join("\\" + c if c in _PUNCTUATION else c for c in match[0]), text)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _escaped(character: str, *, hexadecimal: bool = True) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        raise ValueError("a lone surrogate has no text form")
    if hexadecimal and code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _yaml_float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = float.__repr__(value)
    mantissa, exponent, power = text.partition("e")
    # YAML 1.1 reads 1e-05 as text: it wants a point before the exponent.
    return text if not exponent or "." in mantissa else f"{mantissa}.0e{power}"


def _toml_key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{_shown(key)} is not a TOML key")
    return key if _TOML_BARE_KEY.fullmatch(key) else toml(key)
