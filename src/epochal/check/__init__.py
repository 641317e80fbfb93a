"""A config against signatures and schemas, without importing what it names."""

from epochal.check.convert import convert
from epochal.check.literals import MISSING, Opaque
from epochal.check.parameters import Parameter, Signature
from epochal.check.report import Default, Report
from epochal.check.schema import json_schema
from epochal.check.sections import SECTIONS, Section, own_signature
from epochal.check.several import has_members, member_signature
from epochal.check.signature import read_signature
from epochal.check.spec import Arguments, Spec, arguments, read_spec
from epochal.check.stage_optim import expand_optimizer
from epochal.check.stages import stage_name
from epochal.check.template import template
from epochal.check.whole import check, registry_for

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
