"""Write the tables of docs/check.md: properties, standards, and the reports on torch, jax and plain NumPy formulas.

    .venv/bin/python tools/check_report.py            needs torch, jax and scipy; minutes
    .venv/bin/python tools/check_report.py --tables   the first two alone
"""
import argparse
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

from infiniop_cy.capi import infini_root
from infiniop_cy.check.properties import PROPERTIES
from infiniop_cy.check.standards import PUBLISHED, standard_of

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/check.md"
CANDIDATES = {"torch": (["torch"], []), "jax": (["jax"], ["--quick"]), "numpy": (["numpy", "scipy"], [])}


def replace(text, name, lines):
    """The text between the markers of that name, exchanged."""
    pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
    assert pattern.search(text), f"{PAGE} has no <!-- {name} -->"
    return pattern.sub(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], text)


def properties():
    yield "| property | promises | tested by | under a published standard |"
    yield "|---|---|---|---|"
    for p in PROPERTIES:
        promise, how = (t.replace("|", "\\|") for t in (p.promise, p.how))
        yield f"| {p.name} | {promise} | {how} | {'counts' if p.always else 'shown'} |"


def standards():
    yield "| `--standard` | float16 | bfloat16 | float32 | float64 | source |"
    yield "|---|---|---|---|---|---|"
    for name in ("infiniop", "ulp:4", *PUBLISHED):
        standard = standard_of(name)
        cells = [standard.rule(dtype).replace("|", "\\|") for dtype in ("float16", "bfloat16", "float32", "float64")]
        yield f"| `{name}` | {' | '.join(cells)} | {standard.source} |"


def shorten(text):
    text = text.replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) < 330 else text[:text.rfind(" ", 0, 320)] + " ..."


def is_another_number(title):
    """Whether an operator's title gives numbers alone: the same function by another slope or threshold."""
    given = re.findall(r"=([^,)]+)", title)
    return bool(given) and all(re.fullmatch(r"-?[\d.]+", value) for value in given)


def report(name, words):
    """What failed, by operator and property: the dtypes, and the evidence of the first. What fails by default is not
    said again of other numbers."""
    words = ["check", "--all", "--candidate", name, *words]
    facts = run(words)
    modules, _ = CANDIDATES[name]
    versions = ", ".join(f"{m} {importlib.metadata.version(m)}" for m in modules)
    yield f"`infiniop-cy {' '.join(words)}`: {versions}; {facts['inputs tried']:,} inputs tried."
    yield ""
    yield "| operator | property | dtypes | evidence, of the first |"
    yield "|---|---|---|---|"
    rows = {}
    for result in facts["results"]:
        given = ", ".join(f"{k}={v}" for k, v in result["parameters"].items())
        title = f"{result['operator']}({given})" if given else result["operator"]
        for verdict in result["verdicts"]:
            if verdict["outcome"] == "fails":
                rows.setdefault((title, verdict["property"]), []).append((result["dtype"], verdict["evidence"]))
    for (title, name_of), found in rows.items():
        if is_another_number(title) and (title.partition("(")[0], name_of) in rows:
            continue
        dtypes = "all four" if len(found) == 4 else ", ".join(dtype for dtype, _ in found)
        yield f"| {title} | {name_of} | {dtypes} | {shorten(found[0][1])} |"
    yield ""


def row_of(command, facts):
    """A line on a run that is expected to find nothing."""
    offered = [result for result in facts["results"] if not result["not offered"]]
    holds = sum(result["holds"] for result in offered)
    return f"| `{command}` | {holds} of {len(offered)} | {facts['inputs tried']:,} |"


def itself(exhaustive):
    """This library: its functions, descriptors and C library; and reports of exhaustive runs, made before."""
    yield "| run | hold | inputs tried |"
    yield "|---|---|---|"
    for words in (["--candidate", "infiniop_cy"], ["--candidate", "infiniop_cy-descriptors"],
                  ["--lib", f"{infini_root()}/lib/libinfiniop.so"]):
        command = " ".join(["infiniop-cy check --all", words[0], words[1].removeprefix(f"{infini_root()}/")])
        yield row_of(command, run(["check", "--all", *words]))
    for path in exhaustive:
        facts = json.load(open(path))
        result, = facts["results"]
        given = "".join(f" --parameter {name}={value}" for name, value in result["parameters"].items())
        path = pathlib.PurePath(facts["candidate"])
        candidate = f"--lib lib/{path.name}" if path.suffix == ".so" else f"--candidate {path}"
        yield row_of(f"infiniop-cy check {result['operator']}{given} {candidate} --dtype float32 --exhaustive", facts)


def first(text):
    """What the page's first candidate is told, by the command below it."""
    code, = re.findall(r"```python\n# mine.py\n(.*?)```", text, re.S)
    command, = re.findall(r"```sh\n(infiniop-cy check \S+ --candidate mine:.*)\n```", text)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "mine.py").write_text(code)
        done = subprocess.run([sys.executable, "-m", "infiniop_cy", *command.split()[1:]], cwd=folder,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
    return ["```", *(textwrap.shorten(line, 150, placeholder=" ...") if len(line) > 150 else line.rstrip()
                     for line in done.stdout.strip().splitlines()), "```"]


def run(words):
    """The --json report of a command."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([sys.executable, "-m", "infiniop_cy", *words, "--json", file.name], capture_output=True,
                              text=True, check=False)
        if done.returncode == 2:
            raise SystemExit(done.stderr)
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="properties and standards alone")
    parser.add_argument("--candidate", action="append", choices=[*CANDIDATES, "self"], help="this report; repeatable")
    parser.add_argument("--exhaustive", metavar="JSON", nargs="*", default=[], help="reports to add to the last table")
    arguments = parser.parse_args()
    wanted = [] if arguments.tables else arguments.candidate or [*CANDIDATES, "self"]
    found = {name: list(itself(arguments.exhaustive) if name == "self" else report(name, CANDIDATES[name][1]))
             for name in wanted}
    text = PAGE.read_text()  # now, since it may have been edited in all these minutes
    text = replace(replace(text, "properties", properties()), "standards", standards())
    text = replace(text, "first", first(text))
    for name, lines in found.items():
        text = replace(text, f"report {name}", lines)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
