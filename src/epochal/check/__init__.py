"""A config against signatures and schemas, without importing what it names."""

from epochal.check.config import check, registry_for
from epochal.check.export.schema import json_schema
from epochal.check.export.template import template
from epochal.check.sections.section_shapes import has_members, member_signature
from epochal.check.sections.sections import SECTIONS, Section, own_signature
from epochal.check.sections.stage_optim import expand_optimizer
from epochal.check.sections.stages import stage_name
from epochal.check.signatures.literals import MISSING, Opaque
from epochal.check.signatures.parameters import Parameter, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.spec import Arguments, Spec, arguments, convert, read_spec
from epochal.check.values.report import Default, Report

__all__ = [
    "MISSING",
    "SECTIONS",
    "Arguments",
    "Default",
    "Opaque",
    "Parameter",
    "Report",
    "Section",
    "Signature",
    "Spec",
    "arguments",
    "check",
    "convert",
    "expand_optimizer",
    "has_members",
    "json_schema",
    "member_signature",
    "own_signature",
    "read_signature",
    "read_spec",
    "registry_for",
    "stage_name",
    "template",
]
