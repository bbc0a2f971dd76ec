"""What a check finds. Every text is masked here, so that no check can show a secret."""

from dataclasses import dataclass
from enum import StrEnum

from batchfleet.masking import mask_text


class Verdict(StrEnum):
    """How a part is."""

    OK = "ok"
    WARN = "warn"
    """It works, but something about it should be known."""
    FAIL = "fail"
    """It does not work, or will not."""
    SKIP = "skip"
    """It could not be looked at, because of another failure, or there is nothing to look at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says of one part.

    Attributes:
        check: Name of the check.
        detail: What was found.
        advice: What to do about it, where something is to be done.
    """

    check: str
    verdict: Verdict
    detail: str
    advice: str | None = None

    def shown(self) -> dict[str, str]:
        """Returns it as JSON shows it."""
        members = {"check": self.check, "status": self.verdict.value, "detail": mask_text(self.detail)}
        return members | ({"advice": mask_text(self.advice)} if self.advice else {})

    def lines(self) -> list[str]:
        """Returns it as people read it."""
        shown = self.shown()
        status = shown["status"].upper() if self.verdict is Verdict.FAIL else shown["status"]
        first, *more = shown["detail"].splitlines() or [""]
        lines = [f"{status:<5} {self.check:<12} {first}", *(f"{'':<18} {line}" for line in more)]
        return [*lines, *(f"{'':<18} → {line}" for line in shown.get("advice", "").splitlines())]


def ok(check: str, detail: str) -> Finding:
    """Returns that all is well."""
    return Finding(check, Verdict.OK, detail)


def warn(check: str, detail: str, advice: str | None = None) -> Finding:
    """Returns what should be known."""
    return Finding(check, Verdict.WARN, detail, advice)


def fail(check: str, detail: str, advice: str | None = None) -> Finding:
    """Returns what is wrong."""
    return Finding(check, Verdict.FAIL, detail, advice)


def skip(check: str, detail: str) -> Finding:
    """Returns what was not looked at."""
    return Finding(check, Verdict.SKIP, detail)
