"""A Sphinx extension: the cards of the start page, one for each guide that there is."""
import pathlib

CARDS = (
    ("start", "Five-minute start", "Install it, call it, read its errors, plan a call once and run it often."),
    ("generated/gallery/train_in_40_lines", "Train a network in 40 lines",
     "Handwritten digits, forward and backward by hand: what a framework does behind its tape."),
    ("check-my-kernel", "Check my kernel", "One command says where a gradient operator is wrong, and what shows it."),
    ("bridges", "Inside autograd, JAX, torch", "The same functions, differentiable, on the framework's own arrays."),
    ("reproducible", "Reproducible training", "The same weights to the bit, whatever the threads and the batch."),
    ("c-api", "C and the infiniop API", "libinfiniop.so with the symbols of InfiniCore, for any language."),
    ("gpu", "GPU", "The same formulas through PyCUDA, on whatever arrays are there already."),
    ("reference/index", "Reference", "Every function, descriptor, error and test helper."),
    ("how-it-works", "How it works", "From the table of operators to registers; how a convolution is computed."),
    ("atlas", "Accuracy atlas", "The error of every operator and dtype against x, beside torch."),
    ("performance", "Performance", "Measured beside torch, NumPy and memory itself."),
    ("promises", "What is promised", "Limits, bits, errors, manners, and the settings."),
)


def generate(app):
    source = pathlib.Path(app.srcdir)
    lines = ["::::{grid} 1 2 2 3", ":gutter: 3", ""]
    for page, title, text in CARDS:
        # The gallery's pages are written by another extension, later.
        if page.startswith("generated/") or (source / f"{page}.md").exists():
            lines += [f":::{{grid-item-card}} {title}", f":link: /{page}", ":link-type: doc", "", text, ":::", ""]
    (source / "generated").mkdir(exist_ok=True)
    (source / "generated/cards.inc").write_text("\n".join([*lines, "::::", ""]))


def setup(app):
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
