"""The command: tells what the checks find."""

from collections import Counter

import click

from batchfleet.cli.options import as_json_option, print_json
from batchfleet.embedded.exits import Exit


@click.command()
@as_json_option
def doctor(as_json: bool) -> int:
    """Check each part with the settings of the environment.

    Where the environment names no database and `batchfleet up` runs here, that fleet is checked. What is wrong is
    told with what to do about it; secrets are not shown. Exits 1 if a part does not work, 0 otherwise (warnings
    included).
    """
    from batchfleet.cli.doctor.examine import examine  # noqa: PLC0415 - with the next one: not for `--help`
    from batchfleet.cli.doctor.findings import Verdict  # noqa: PLC0415

    found = []
    for finding in examine():
        found.append(finding)
        if not as_json:
            print("\n".join(finding.lines()), flush=True)
    counts = Counter(finding.verdict for finding in found)
    if as_json:
        print_json({"ok": not counts[Verdict.FAIL], "checks": [finding.shown() for finding in found]})
    else:
        warnings = f"{counts[Verdict.WARN]} warning{'' if counts[Verdict.WARN] == 1 else 's'}"
        print(f"{counts[Verdict.OK]} ok, {warnings}, {counts[Verdict.FAIL]} wrong")
    return Exit.FAILED if counts[Verdict.FAIL] else Exit.OK
