"""What `benchmarks/branch.py` writes: its steps as a page and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias

from benchmarks.branch_project import Said, as_text, gate_report, pair_report
from tirbench import codec

Verdict: TypeAlias = Literal["as expected", "NOT AS EXPECTED", "left out", "for information"]


@dataclass(kw_only=True)
class Step:
    """One claim: what was expected, what came of it in a line, and the commands that show it."""

    name: str
    expected: str
    said: str
    verdict: Verdict
    commands: list[Said] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def facts_of(device: Literal["cuda", "cpu"], argv: Sequence[str], seconds: float) -> dict[str, Any]:
    """Date, device, versions and command."""
    from tirbench.execute import describe

    machine = describe(device)
    known = {**dict(machine.facts), **dict(machine.versions)}
    names = ("driver", "torch", "triton", "apache-tvm-tirx", "tirbench")
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "device": machine.device,
        "hardware": machine.hardware,
        "versions": {name: known[name] for name in names if name in known},
        "command": " ".join(["python -m benchmarks.branch", *argv]),
        "seconds": round(seconds),
    }


def document(facts: dict[str, Any], steps: Sequence[Step]) -> dict[str, Any]:
    """Everything, for programs: of each command what it was, its exit code and its reports."""
    found = []
    for step in steps:
        data = asdict(step)
        data["commands"] = [
            {
                "command": said.command,
                "code": said.code,
                "seconds": round(said.seconds, 1),
                "report": codec.dump(report) if (report := _report(said)) else None,
            }
            for said in step.commands
        ]
        found.append(data)
    return {"facts": facts, "steps": found}


def _report(said: Said) -> Any:
    if " ab " in said.command and "--format json" in said.command:
        return pair_report(said)
    return gate_report(said) if " gate " in said.command else None


def exit_code(steps: Sequence[Step]) -> int:
    """1 where something was not as expected, 3 where something could not be shown."""
    verdicts = {step.verdict for step in steps}
    return 1 if "NOT AS EXPECTED" in verdicts else 3 if "left out" in verdicts else 0


def markdown(facts: dict[str, Any], steps: Sequence[Step]) -> str:
    """A table of the claims, then every command with what it printed."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = [
        f"# A change's way: pin, branch, ab, gate, on {facts['device']}",
        "",
        f"{facts['date']}, {versions}; {facts['seconds']} s.",
        f"Command: `{facts['command']}`",
        "",
        "| step | expected | seen | verdict |",
        "| --- | --- | --- | --- |",
        *(
            f"| {step.name} | {_cell(step.expected)} | {_cell(step.said)} | {_mark(step.verdict)} |"
            for step in steps
        ),
    ]
    for step in steps:
        lines += _section(step)
    return "\n".join(lines) + "\n"


def _section(step: Step) -> Iterator[str]:
    if not step.commands:
        return
    yield from ("", f"## {step.name}")
    if step.facts.get("diff"):
        yield from ("", "```diff", step.facts["diff"].rstrip(), "```")
    if step.facts.get("tried"):
        yield from ("", "Strengths that were tried:", "")
        for strength, effects in step.facts["tried"].items():
            sizes = ", ".join(
                f"{key} {100 * one['slower']:+.2f} ± {100 * one['half_width']:.2f} %"
                for key, one in effects.items()
            )
            yield f"- {strength}: {sizes}"
    for said in step.commands:
        yield from (
            "",
            f"`{said.command}`: exit {said.code}, {said.seconds:.0f} s",
            "",
            "```text",
            as_text(said),
            "```",
        )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _mark(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "NOT AS EXPECTED" else verdict
