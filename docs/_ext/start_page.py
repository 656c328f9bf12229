"""A Sphinx extension: the start page's cards and its lists of contents, of the guides that there are."""
import pathlib

SECTIONS = {
    "Guides": (
        ("start", "Five-minute start", "Install it, call it, read its errors, plan a call once and run it often."),
        ("generated/gallery/train_in_40_lines", "Train a network in 40 lines",
         "Handwritten digits, forward and backward by hand: what a framework does behind its tape."),
        ("check-my-kernel", "Check my kernel", "One command says where an operator is wrong, and what shows it."),
        ("bridges", "Inside autograd, JAX, torch", "The same functions, differentiable, on a framework's arrays."),
        ("reproducible", "Reproducible training", "The same weights to the bit, whatever the threads and the batch."),
        ("distributed", "More than one machine", "Gradients of many workers, the same bits on any number of them."),
        ("c-api", "C and the infiniop API", "libinfiniop.so with the symbols of InfiniCore, for any language."),
        ("gpu", "GPU", "The same formulas through PyCUDA, on whatever arrays are there already."),
    ),
    "Reference": (
        ("reference/index", "Reference", "Every function, descriptor, error and test helper."),
    ),
    "Background": (
        ("how-it-works", "How it works", "From the table of operators to registers; how a convolution is computed."),
        ("atlas", "Accuracy atlas", "The error of every operator and dtype against x, beside torch."),
        ("performance", "Performance", "Measured beside torch, NumPy and memory itself."),
        ("promises", "What is promised", "Limits, bits, errors, manners, and the settings."),
    ),
}


def there_is(source, page):
    """The gallery's pages are written by another extension, later."""
    return page.startswith("generated/") or (source / f"{page}.md").exists()


def generate(app):
    source = pathlib.Path(app.srcdir)
    cards, contents = ["::::{grid} 1 2 2 3", ":gutter: 3", ""], []
    for section, entries in SECTIONS.items():
        entries = [entry for entry in entries if there_is(source, entry[0])]
        for page, title, text in entries:
            cards += [f":::{{grid-item-card}} {title}", f":link: /{page}", ":link-type: doc", "", text, ":::", ""]
        pages = [page for page, _, _ in entries]
        contents += ["```{toctree}", ":hidden:", f":caption: {section}", "", *pages, "```", ""]
    (source / "generated").mkdir(exist_ok=True)
    (source / "generated/cards.inc").write_text("\n".join([*cards, "::::", "", *contents]))


def setup(app):
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
