"""Vectors into a model: the only place that touches a host's internals."""

from tokagnostic.host.attach import Attachment, attach, attachment_of
from tokagnostic.host.layer import GateForm, MemoryLayer

__all__ = ["Attachment", "GateForm", "MemoryLayer", "attach", "attachment_of"]
