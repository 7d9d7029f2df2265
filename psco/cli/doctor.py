"""The command that looks at the installation."""

from __future__ import annotations

import json

import typer

from psco.cli.common import Debug, Json, for_people


@for_people
def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check this installation: versions, threads, allocator, optional packages, cache."""
    from psco.cli.diagnosis import examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{finding.verdict:<7} {finding.subject:<18} {finding.detail}")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(1)
