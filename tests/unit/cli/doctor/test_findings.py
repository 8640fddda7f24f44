"""The lines that the doctor prints."""

import json

from quorate.cli.doctor.findings import (
    SHOWN_PER_KIND,
    DoctorFinding,
    FindingSeverity,
    Kind,
    Report,
    change_lines,
    json_line,
    text_lines,
)


def finding(subject: str, kind: Kind = Kind.LEADER, severity: FindingSeverity = FindingSeverity.ERROR) -> DoctorFinding:
    return DoctorFinding(kind=kind, severity=severity, subject=subject, text="is wrong")


def report(*findings: DoctorFinding) -> Report:
    return Report(node_count=3, partition_count=10, claims_tried=72, findings=findings)


def test_healthy_report_is_one_line() -> None:
    assert list(text_lines(report())) == ["3 nodes, 10 partitions, 72 claims tried, 0 disagreements"]


def test_disagreements_are_counted_apart_from_other_findings() -> None:
    lines = list(text_lines(report(finding("a-0"), finding("a-1", Kind.UNDER_REPLICATED, FindingSeverity.WARNING))))

    assert lines == [
        "error: a-0: is wrong",
        "warning: a-1: is wrong",
        "3 nodes, 10 partitions, 72 claims tried, 1 disagreement, 1 other finding",
    ]


def test_many_findings_of_a_kind_are_cut_short() -> None:
    lines = list(text_lines(report(*(finding(f"a-{number}") for number in range(SHOWN_PER_KIND + 5)))))

    assert len(lines) == SHOWN_PER_KIND + 2
    assert lines[-2] == "and 5 more of the kind leader (--format json has all)"


def test_watching_tells_only_what_changed() -> None:
    before, now = report(finding("a-0"), finding("a-1")), report(finding("a-1"), finding("a-2"))

    assert list(change_lines(before, before)) == []
    assert list(change_lines(before, now))[:-1] == ["error: a-2: is wrong", "gone: a-0: is wrong"]
    assert list(change_lines(None, now)) == list(text_lines(now))


def test_json_says_whether_there_is_an_error() -> None:
    warned = json.loads(json_line(report(finding("a-0", Kind.UNDER_REPLICATED, FindingSeverity.WARNING))))
    wrong = json.loads(json_line(report(finding("a-0"))))

    assert (warned["healthy"], warned["disagreements"]) == (True, 0)
    assert (wrong["healthy"], wrong["disagreements"], wrong["errors"]) == (False, 1, 1)
    assert wrong["findings"][0]["subject"] == "a-0"
