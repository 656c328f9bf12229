"""How Sphinx builds the site: `make docs`. The pages stay readable on GitHub; what follows from the table of operators
is written at build into docs/generated, which git does not know."""
import ast
import importlib.metadata
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "infiniop_cy"
author = "infiniop_cy developers"
copyright = author
release = version = importlib.metadata.version("infiniop_cy")

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.doctest", "numpydoc", "myst_parser", "sphinx_design", "sphinx_copybutton",
    "sphinx_gallery.gen_gallery", "operator_pages", "start_page",
]
exclude_patterns = ["_build", "generated/gallery/*.ipynb", "generated/gallery/*.py", "generated/gallery/index.rst",
                    "generated/gallery/GALLERY_HEADER.rst", "generated/gallery/sg_execution_times.rst"]
nitpicky = True
show_warning_types = True

# ---- pages in Markdown, as GitHub reads them
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

# ---- docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
toc_object_entries_show_parents = "hide"
trim_doctest_flags = True
doctest_test_doctest_blocks = "default"

# ---- examples: those in cells are run and shown with what they print and draw
GALLERY = HERE.parent / "examples"


def _is_gallery(path):
    """Whether a script is written in cells, for the gallery."""
    return "\n# %%" in path.read_text() and ast.get_docstring(ast.parse(path.read_text()))


sphinx_gallery_conf = {
    "examples_dirs": str(GALLERY),
    "gallery_dirs": "generated/gallery",
    "filename_pattern": ".",
    "ignore_pattern": "|".join(rf"{p.name}$" for p in GALLERY.glob("*.py") if not _is_gallery(p)) or "^$",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "abort_on_example_error": True,
    "reference_url": {},
    "copyfile_regex": r"GALLERY_HEADER.rst",
}

# ---- looks
html_theme = "pydata_sphinx_theme"
html_title = f"infiniop_cy {release}"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_sidebars = {"**": ["contents.html"]}
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "infiniop_cy"},
    "navbar_align": "left",
    "navbar_center": [],  # the contents are at the side
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def _within(app, name, source):
    """Links out of docs/ lead to files on GitHub, which are not part of the site: their text stays."""
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"`\1`", source[0])


def setup(app):
    app.connect("source-read", _within)
