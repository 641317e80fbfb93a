"""Checks configs against signatures and schemas, without importing what they name."""

from epochal.check.config import CheckReport, build_registry, check
from epochal.check.export.schema import json_schema
from epochal.check.export.template import yaml_template
from epochal.check.sections.optim import expand_optimizer
from epochal.check.sections.section_shapes import has_members, member_signature
from epochal.check.sections.sections import SECTIONS, section_signature
from epochal.check.sections.stages import stage_name
from epochal.check.signatures.parameters import MISSING, Opaque, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.spec import Spec, build_arguments, convert_value, read_spec
from epochal.check.values.checker import Default
from epochal.check.values.types import nested_kind

__all__ = [
    "MISSING",
    "SECTIONS",
    "CheckReport",
    "Default",
    "Opaque",
    "Signature",
    "Spec",
    "build_arguments",
    "build_registry",
    "check",
    "convert_value",
    "expand_optimizer",
    "has_members",
    "json_schema",
    "member_signature",
    "nested_kind",
    "read_signature",
    "read_spec",
    "section_signature",
    "stage_name",
    "yaml_template",
]
