"""`batchfleet doctor`: checks each part with the settings at hand, says what is wrong and what to do.

Reading order: `findings` (values), `subject` (what is checked), `store_checks` and `part_checks` (one function a
check), `examine` (all of them), `command`.
"""

from batchfleet.cli.doctor.command import doctor

__all__ = ["doctor"]
