"""[checkpoint]: which files training reads, and the key remap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.errors import RefusedError, ScaffoldError
from scaffold.remap import KeyMap, Row, Rule, SourceRules, infer_key_map, rendered_table
from scaffold.spec.architecture import parameters
from scaffold.spec.blocks import established, kinds
from scaffold.spec.configuration import ROOT, follow, root_config, text_config
from scaffold.spec.section import Section

Inferred = tuple[KeyMap, list[str], list[Row]]
_LAST: list[tuple[object, Inferred]] = []

_TEXT_FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "rope_theta",
)


def fill_checkpoint(section: Section) -> None:
    """Infer the key map from names and shapes, and from upstream's loader where they do not suffice.

    The preset words the reasons for what is left out.

    Raises:
        ScaffoldError: the checkpoint does not fill the training module.
    """
    headers, origin = section.sources.headers, section.sources.headers_origin
    wanted = parameters(section.before["architecture"], section.before["latents"])
    reasons = _drop_reasons(section)
    source = SourceRules.of(section.sources.report)
    known = tuple(established(section))
    _, loader = section.known("answers.checkpoint.renames")
    key_map, files, rows = _inferred_once(headers, wanted, known, source, reasons)
    key_map = KeyMap(tuple(replace(rule, origin=_origin(rule, section)) for rule in key_map.rules))
    section.put("rules", key_map.to_data(), f"{origin}; {loader}; each rule says its own origin")
    table = [
        {"source": row.source, "target": row.target or "", "count": row.count, "reason": row.reason, "note": row.note}
        for row in rows
    ]
    section.put("table", table, "the rules applied to the headers, folded by layer")
    section.put("files", list(files), origin)
    size = sum(tensor.nbytes for tensor in headers.tensors.values() if tensor.file in files)
    section.put("bytes", size, origin)
    if section.sources.preset.value(section.name, "index") is not None:
        section.preset("index")
    prefix = section.sources.report.facts.get("detail.checkpoint.loader_prefix")
    if prefix is not None and prefix.value:
        section.fact("loader_prefix", "detail.checkpoint.loader_prefix")
    _put_second_prefix(section)
    text_file = section.before["architecture"]["config_file"]
    section.put(
        "config_files", {"root": ROOT, "text": text_file, "text_section": _text_section(section)}, _CONFIG_ORIGIN
    )
    sizes = section.before["architecture"]
    own_head_dim = sizes["head_dim"] * sizes["num_attention_heads"] != sizes["hidden_size"]
    names = [*_TEXT_FIELDS, *(["head_dim"] if own_head_dim else [])]
    section.put("text_config", [{"field": name, "key": name} for name in names], "default of omni-scaffold")
    section.put("root_config", _root_config(section), f"{_CONFIG_ORIGIN}; preset {section.sources.preset.name}")
    extra = _extra_fields(section)
    if extra:
        section.put("fields", extra, f"blocks of [architecture]; preset {section.sources.preset.name}")
    fixed = _fixed(section)
    if fixed:
        _refuse_other(section, fixed)
        section.put("fixed_config", fixed, f"preset {section.sources.preset.name}")


def _inferred_once(
    headers: CheckpointHeaders,
    wanted: dict[str, tuple[int, ...]],
    known: tuple[Rule, ...],
    source: SourceRules,
    reasons: dict[str, str],
) -> Inferred:
    """Return what `_inferred` does, its last answer if it is asked the same: a spec is composed again and again."""
    # Rules are equal without their origins.
    asked = (headers, wanted, known, [rule.origin for rule in known], source, reasons)
    if not _LAST or _LAST[0][0] != asked:
        _LAST[:] = [(asked, _inferred(headers, wanted, known, source, reasons))]
    return _LAST[0][1]


def _inferred(
    headers: CheckpointHeaders,
    wanted: dict[str, tuple[int, ...]],
    known: tuple[Rule, ...],
    source: SourceRules,
    reasons: dict[str, str],
) -> Inferred:
    """Return the key map, the files that training reads, and the table that people read."""
    key_map = infer_key_map(headers, wanted, known=known, source=source, drop_reasons=reasons)
    files = sorted({headers.tensors[name].file for name in key_map.apply_all(headers).targets})
    if len(files) < len(headers.files):
        headers = headers.select(files)  # an autoencoder in a file of its own is no business of the training module's
        key_map = infer_key_map(headers, wanted, known=known, source=source, drop_reasons=reasons)
    return key_map, files, rendered_table(key_map, headers)


def _put_second_prefix(section: Section) -> None:
    """Put a prefix of the engine's that the rollout adapter takes off, so that names are those that stand first.

    Raises:
        RefusedError: the pipeline's loader does not know all names without it.
    """
    if section.sources.report.fact("detail.checkpoint.second_prefix").value is None:
        return
    prefix = section.fact("second_prefix", "detail.checkpoint.second_prefix")
    names, _ = section.known("detail.checkpoint.second_names")
    renames = section.known("answers.checkpoint.renames")[0] or ()
    known = {*(f"{name}." for name in names), *(source for source, target in renames if target == prefix + source)}
    tops = {f"{name.partition('.')[0]}." for name in section.sources.headers.tensors}
    if not tops <= known:
        raise RefusedError(
            f"{sorted(tops - known)[0]!r} stands below {prefix!r} in the engine, and the loader knows no other name",
            hint="vllm loads an embedding that stands twice under its first name alone",
        )


def _drop_reasons(section: Section) -> dict[str, str]:
    """Return why training has no use for tensors; for an edit, some are of the rollout's encoders."""
    preset, edit = section.sources.preset, section.sources.report.task is not None
    keys = ["drop_reasons", *(["edit_drop_reasons"] if edit else [])]
    return {k: v for key in keys for k, v in (preset.value("checkpoint", key) or {}).items()}


def _origin(rule: Rule, section: Section) -> str:
    """Return who made a rule: the loader for what it cites, the preset for reasons that it words, else the headers."""
    if rule.origin is not None:
        return rule.origin
    worded = _drop_reasons(section).values()
    if rule.op == "drop" and any(rule.reason == reason for reason in worded):
        return f"{section.sources.headers_origin}; preset {section.sources.preset.name}"
    return section.sources.headers_origin


_CONFIG_ORIGIN = "fact detail.config_files"


def _text_section(section: Section) -> str | None:
    value = section.sources.preset.value(section.name, "text_section")
    return value if isinstance(value, str) else None


def _root_config(section: Section) -> list[dict[str, Any]]:
    """Return field, path and default of each size that ``config.json`` may give."""
    read, _ = section.known("detail.config_files")
    defaults = ((read or {}).get(ROOT) or {}).get("keys") or {}
    paths = section.sources.preset.value(section.name, "root_config") or {}
    fallback = {
        "latent_patch_size": section.before["latents"]["patch"],
        "max_latent_size": section.before["architecture"].get("position_table_side"),
        "latent_channel": section.before["latents"]["channels"],
        "vae_downsample": section.before["latents"]["downsample"],
    }
    return [
        _read_from(section, field, default, defaults.get(paths.get(field)))
        for field, default in fallback.items()
        if default is not None
    ]


def _extra_fields(section: Section) -> list[dict[str, Any]]:
    """Return what the blocks of the model need beside the fields that every model has."""
    architecture = section.before["architecture"]
    wanted: dict[str, Any] = {}
    for role in ("latent_input", "latent_output"):
        wanted |= kinds(role)[architecture.get(role) or "linear"].fields(architecture)
    for name in ("rope_theta_grid", "rope_sections"):
        if architecture.get(name) is not None:
            wanted[name] = architecture[name]
    found = [_read_from(section, field, value) for field, value in wanted.items()]
    rule = section.sources.preset.value("architecture", "noise_rule") if architecture.get("noise_rule") else None
    if rule is not None:
        values = architecture["noise_rule"]["fields"]
        found += [
            {"field": name, "path": path, "default": values[name], "path_default": rule["neutral"][name]}
            for name, path in rule["paths"].items()
        ]
    return found


def _read_from(section: Section, field: str, default: Any, silent: Any = None) -> dict[str, Any]:
    """Return where a field is read: a dotted path of ``config.json``, and a second one that its value is divided by.

    Args:
        section: the section.
        field: of the training module's configuration.
        default: its value for this checkpoint.
        silent: what upstream assumes where the path has no entry, if the source says.
    """
    paths = section.sources.preset.value(section.name, "root_config") or {}
    over = (section.sources.preset.value(section.name, "divided_by") or {}).get(field)
    entry = {"field": field, "path": paths.get(field, ""), "default": default}
    own = section.sources.preset.value(section.name, "text_fields") or {}
    if field in own:
        said = follow(text_config(section), own[field])
        return {**entry, "path": own[field], "default": default if said is None else said, "of": "text"}
    if over is None:
        return entry if silent is None else {**entry, "default": silent}
    divisor = follow(root_config(section), over["path"])
    divisor = over["default"] if divisor is None else divisor
    found = (follow(root_config(section), entry["path"]) or silent) if entry["path"] else 1
    if not isinstance(divisor, int | float) or not divisor or int((found or 0) / divisor) != default:
        raise ScaffoldError(
            f"{section.sources.headers.source}: {entry['path'] or '1'} over {over['path']} is not {default}, the size "
            f"that its tensors give for {field.replace('_', ' ')}"
        )
    return {**entry, "path_default": found, "over": over["path"], "over_default": over["default"]}


def _fixed(section: Section) -> list[dict[str, Any]]:
    """Return what the configuration must say for this package to be right, now and whenever it is loaded."""
    fixed: list[dict[str, Any]] = list(section.sources.preset.value(section.name, "fixed_config") or ())
    rule = section.sources.preset.value("architecture", "noise_rule")
    if rule is None:
        return fixed
    chosen = section.before["architecture"].get("noise_rule")
    embedded = bool(chosen and chosen.get("embedder"))
    part = "an embedding of the noise's scale"
    fixed.append({"path": rule["embedding"], "value": embedded, "silent": False, "part": part})
    if chosen is None:
        part = "noise whose scale follows the image"
        fixed += [
            {"path": path, "value": rule["neutral"][name], "part": part}
            for name, path in rule["paths"].items()
            if name in ("noise_scale", "noise_mode")
        ]
    return fixed


def _refuse_other(section: Section, fixed: list[dict[str, Any]]) -> None:
    """Raise `RefusedError` for a checkpoint whose configuration asks for a part that no block renders."""
    for entry in fixed:
        value = follow(root_config(section), entry["path"])
        if value is not None and value != entry["value"]:
            raise RefusedError(
                f"{section.sources.headers.source}: {entry['path']} is {value!r}: no template renders {entry['part']}",
                hint="the pipeline would compute something that training does not",
            )
