"""A config against signatures and schemas, without importing what it names."""

from epochal.check.convert import convert
from epochal.check.literals import MISSING, Opaque
from epochal.check.report import Default, Report
from epochal.check.sections import SECTIONS, Section
from epochal.check.signature import Parameter, Signature, read_signature
from epochal.check.spec import Spec, arguments, read_spec
from epochal.check.whole import check, registry_for

__all__ = [
    "MISSING",
    "SECTIONS",
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
    "read_signature",
    "read_spec",
    "registry_for",
]
