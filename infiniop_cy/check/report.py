"""The verdicts: a table for people, JSON and JUnit for programs."""
import json
import re
from xml.etree import ElementTree

from infiniop_cy.check.properties import BY_NAME

MARKS = {"holds": "[green]ok[/]", "skipped": "[dim]–[/]", "fails": "[bold red]FAILS[/]"}
OUTSIDE = "[yellow]fails*[/]"


def grouped(results):
    """{title: its Results}, one per dtype, in order."""
    groups = {}
    for result in results:
        groups.setdefault(result.title, []).append(result)
    return groups


def show(console, results, standard, standard_name, candidate):
    """Print a table per operator: properties down, dtypes across; then the evidence of what failed, and
    what the candidate refused of what holds."""
    from rich.markup import escape
    for title, group in grouped(results).items():
        show_group(console, title, group, standard)
    tried = sum(r.tried for r in results)
    failed = [r for r in results if r.failed(standard)]
    offered = [r for r in results if not r.not_offered]
    where = f"{', '.join(f'{r.title} {r.dtype}' for r in failed[:6])}{', ...' if len(failed) > 6 else ''}"
    hold = f"{len(offered) - len(failed)} of {len(offered)} checks hold under {standard_name}"
    console.print(f"{escape(candidate)}: {hold}" + (f"; [bold red]failed:[/] {where}" if failed else "")
                  + (f". {tried:,} inputs tried." if tried else "."), soft_wrap=True)


def show_group(console, title, group, standard):
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text
    offered = [r for r in group if not r.not_offered]
    for result in group:
        if result.not_offered:
            console.print(f"[dim]{escape(title)} {result.dtype}: not offered: {escape(result.not_offered)}[/]",
                          soft_wrap=True)
    if not offered:
        return
    table = Table(title=escape(title), title_justify="left", header_style="", box=None, pad_edge=False)
    table.add_column("")
    for result in offered:
        table.add_column(result.dtype)
    outside = False
    for name in BY_NAME:
        row = [next((v for v in r.verdicts if v.name == name), None) for r in offered]
        if not any(row):
            continue
        cells = []
        for result, verdict in zip(offered, row):
            weak = verdict is not None and verdict.failed and verdict not in result.counts(standard)
            outside |= weak
            cells.append("" if verdict is None else OUTSIDE if weak else MARKS[verdict.outcome])
        table.add_row(name, *cells)
    console.print(table)
    if outside:
        console.print("[dim]* outside the standard: shown, and not counted[/]")
    for name in BY_NAME:
        for result in offered:
            for verdict in result.verdicts:
                if verdict.name == name and (verdict.failed or verdict.details.get("refused")):
                    console.print(Text.assemble((f"{name}, {result.dtype}: ", "bold" if verdict.failed else "dim"),
                                                verdict.evidence), soft_wrap=True)
    for result in offered:
        _show_histogram(console, result)
    console.print()


def _show_histogram(console, result):
    accuracy = next((v for v in result.verdicts if v.name == "accuracy" and v.details), None)
    if accuracy is None or not accuracy.failed:
        return
    parts = [f"{name}: {count:,}" for name, count in accuracy.details["histogram"].items() if count]
    console.print(f"[dim]{result.dtype}, results by error in ulp: {'; '.join(parts)}[/]", soft_wrap=True)
    worst = [f"{region} {most:.3g}" for region, (_, most) in accuracy.details["regions"].items()]
    console.print(f"[dim]{result.dtype}, worst ulp by region: {'; '.join(worst)}[/]", soft_wrap=True)


def as_dict(results, standard, standard_name, candidate):
    """What --json writes."""
    return {"candidate": candidate, "standard": standard_name, "source": standard.source, "holds": not any(
        r.failed(standard) for r in results), "inputs tried": sum(r.tried for r in results), "results": [
            {"operator": r.operator, "parameters": r.parameters, "dtype": r.dtype, "not offered": r.not_offered or None,
             "tried": r.tried, "holds": not r.failed(standard), "verdicts": [
                 {"property": v.name, "outcome": v.outcome, "counts": v in r.counts(standard),
                  "evidence": v.evidence, "tried": v.tried, "details": v.details} for v in r.verdicts]}
            for r in results]}


def write_json(path, *arguments):
    with open(path, "w") as file:
        json.dump(_finite(as_dict(*arguments)), file, indent=1)


def _finite(value):
    """JSON has no inf and NaN: they become the strings "inf", "-inf" and "nan"."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value


def _xml(text):
    """Without what no XML document may hold: the control characters by which programs colour what they say."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)


def write_junit(path, results, standard, standard_name, candidate):
    """A test case per subject and property."""
    suites = ElementTree.Element("testsuites", name=_xml(f"infiniop-cy check {candidate}, standard {standard_name}"))
    for result in results:
        suite = ElementTree.SubElement(suites, "testsuite", name=f"{result.title} {result.dtype}")
        counted = result.counts(standard)
        bad = skips = 0
        for verdict in result.verdicts:
            case = ElementTree.SubElement(suite, "testcase", name=verdict.name,
                                          classname=f"{result.title}.{result.dtype}")
            if verdict.failed and verdict in counted:
                ElementTree.SubElement(case, "failure", message=_xml(verdict.evidence))
                bad += 1
            elif verdict.outcome != "holds":
                ElementTree.SubElement(case, "skipped", message=_xml(verdict.evidence))
                skips += 1
        if result.not_offered:
            case = ElementTree.SubElement(suite, "testcase", name="offered", classname=result.title)
            ElementTree.SubElement(case, "skipped", message=_xml(result.not_offered))
            skips += 1
        suite.attrib |= {"tests": str(len(suite)), "failures": str(bad), "skipped": str(skips)}
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)
