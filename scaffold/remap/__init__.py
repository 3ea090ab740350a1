"""The key remap: rules from a checkpoint's keys to the training module's parameters, their inference and proof."""

from scaffold.remap.infer import infer_key_map
from scaffold.remap.key_map import AppliedMap, Dropped, KeyMap, Mapped, Problem
from scaffold.remap.proof import Offender, Proof, prove
from scaffold.remap.rule import Rule
from scaffold.remap.sourced import SourceRule, SourceRules
from scaffold.remap.table import Row, rendered_table

__all__ = [
    "AppliedMap",
    "Dropped",
    "KeyMap",
    "Mapped",
    "Offender",
    "Problem",
    "Proof",
    "Row",
    "Rule",
    "SourceRule",
    "SourceRules",
    "infer_key_map",
    "prove",
    "rendered_table",
]
