"""What Sphinx does not check: sessions in Markdown pages, examples that are no gallery, links that GitHub follows.

    python docs/check_pages.py sessions     every ```pycon block prints what it says
    python docs/check_pages.py examples     every script of examples/ ends with status 0
    python docs/check_pages.py links        links of Markdown files outside of docs/, and of the built site
"""
import ast
import doctest
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
SITE = DOCS / "_build/html"


def only_sessions(text):
    """The text with everything outside of ```pycon blocks blank, so that line numbers stay."""
    inside, lines = False, []
    for line in text.splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = line.startswith("```pycon") or (inside and not fence)
    return "\n".join(lines)


def sessions():
    """How many examples of all pages fail; each page has its own names."""
    failed = attempted = 0
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for path in [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]:
        test = doctest.DocTestParser().get_doctest(only_sessions(path.read_text()), {}, path.name, str(path), 0)
        result = runner.run(test)
        failed, attempted = failed + result.failed, attempted + result.attempted
    print(f"sessions: {attempted} examples, {failed} failed")
    return failed or not attempted


def missing_imports(path, beside):
    """Modules that a script imports at its top and that are not installed."""
    names = [name for node in ast.parse(path.read_text()).body for name in (
        [alias.name for alias in node.names] if isinstance(node, ast.Import)
        else [node.module] if isinstance(node, ast.ImportFrom) else [])]
    return sorted({top for top in (name.split(".")[0] for name in names)
                   if top not in beside and importlib.util.find_spec(top) is None})


def examples():
    """How many of the scripts fail. What needs a package that is not installed is named and left out."""
    failed, paths = 0, sorted((ROOT / "examples").glob("*.py"))
    for path in paths:
        if "\n# %%" in path.read_text():  # in cells: the gallery runs it
            continue
        missing = missing_imports(path, {p.stem for p in paths})
        if missing:
            print(f"examples: {path.name} not run, it needs {', '.join(missing)}")
            continue
        ran = subprocess.run([sys.executable, path], env=os.environ | {"MPLBACKEND": "agg"}, capture_output=True,
                             text=True, check=False)
        print(f"examples: {path.name} {'failed' if ran.returncode else 'ran'}")
        if ran.returncode:
            print(ran.stdout + ran.stderr)
            failed += 1
    return failed


class Page(HTMLParser):
    """The links of an HTML page, and the places in it that links may name."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = set(), {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def broken(page, link, places):
    """Whether a link from this file leads nowhere; places: those of an HTML or Markdown file, else None."""
    url = urlsplit(link)
    if url.scheme or url.netloc:
        return False
    target = (page.parent / unquote(url.path)).resolve() if url.path else page
    if not target.exists():
        return True
    known = places(target) if url.fragment else None
    return known is not None and unquote(url.fragment) not in known


def slugs(path):
    """The anchors that GitHub gives to the headings of a Markdown file."""
    if path.suffix != ".md":
        return None
    headings = re.findall(r"^#+ +(.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def links():
    """How many internal links are broken."""
    # Below _static is a template of the theme's, which is no page.
    pages = {path.resolve(): Page(path) for path in SITE.rglob("*.html") if "_static" not in path.parts}
    wrong = [(path.relative_to(SITE), link) for path, page in pages.items() for link in page.links
             if broken(path, link, lambda target: pages[target].places if target in pages else None)]
    markdown = [path for path in ROOT.rglob("*.md") if not {".venv", "_build", "generated"} & set(path.parts)]
    wrong += [(path.relative_to(ROOT), link) for path in markdown
              for link in re.findall(r"\]\(([^()\s]+)\)", path.read_text())
              if broken(path.resolve(), link, slugs) and not link.startswith("generated/")]
    for page, link in wrong:
        print(f"links: {page} leads to {link}, which is not there")
    print(f"links: {len(pages)} pages of the site and {len(markdown)} Markdown files, {len(wrong)} broken")
    return len(wrong) or not pages


if __name__ == "__main__":
    sys.exit(bool(sum([{"sessions": sessions, "examples": examples, "links": links}[name]() for name in sys.argv[1:]])))
