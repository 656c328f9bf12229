"""CUDA to C++, on preprocessed text: shared memory becomes thread-local, kernels become known to the driver."""

import re

TOKENS = re.compile(
    r'"(?:\\.|[^"\\\n])*"'  # strings and characters may hold braces
    r"|(?<![0-9A-Za-z_])'(?:\\.[^'\n]*|[^'\\\n])'"
    r"|[(){};]"
)
OPENING = {")": "(", "}": "{"}
EXTERN_SHARED = re.compile(
    r"\bextern\b(?P<before>.*)\b__shared__\b(?P<after>.*?)(?P<name>\w+)\s*\[\s*\]\s*$", re.DOTALL
)
ALIGNMENT = re.compile(r"\balignas\s*\([^()]*\)|__attribute__\s*\(\([^()]*(?:\([^()]*\))?\)\)")
STATIC = re.compile(r"\bstatic\b")
KERNEL_NAME = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
NOT_NAMES = {"__attribute__", "alignas", "__launch_bounds__", "decltype"}


def closing(text, position):
    """The position behind the bracket that closes the one at position; strings are skipped."""
    depth = 0
    for token in TOKENS.finditer(text, position):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(token[0], 0)
        if depth == 0 and token[0] in OPENING:
            return token.end()
    raise SystemExit(f"unbalanced bracket near: {text[position:position + 60]!r}")


def shared_declaration(text):
    """A declaration with __shared__, without its semicolon: thread-local, or a pointer to what a launch gave."""
    match = EXTERN_SHARED.search(text)
    if match is None:
        return STATIC.sub("", text).replace("__shared__", "static __thread")
    kind = ALIGNMENT.sub(" ", re.sub(r"\n#[^\n]*", "", match["before"] + match["after"]))
    kind = " ".join(kind.split())
    head = text[: match.start()]
    return f"{head}{kind}* const {match['name']} = ::emulation_shim::dynamic_shared<{kind}>()"


def with_shared(text):
    pieces, done = [], 0
    while (at := text.find("__shared__", done)) >= 0:
        start, end = max(done, statement_start(text, at)), text.index(";", at)
        pieces += [text[done:start], shared_declaration(text[start:end])]
        done = end
    return "".join(pieces) + text[done:]


def statement_start(text, position):
    """Where the declaration that holds position begins."""
    return max(text.rfind(mark, 0, position) for mark in ";{}") + 1


def without_launch_bounds(text):
    """The text without __launch_bounds__(...), and the arguments of the last one."""
    bounds = ""
    while (at := text.find("__launch_bounds__")) >= 0:
        opening = text.index("(", at)
        end = closing(text, opening)
        bounds = text[opening + 1 : end - 1]
        text = text[:at] + " " + text[end:]
    return text, bounds


def kernel_name(text, position):
    """The first word before a bracket that is a name, and where its bracket opens."""
    while True:
        match = KERNEL_NAME.search(text, position)
        if match is None:
            return None, len(text)
        opening = match.end() - 1
        if match[1] not in NOT_NAMES:
            return match[1], opening
        position = closing(text, opening)


def translate(text):
    """C++ for the host compiler; line markers are kept, so its messages show the lines of the source."""
    text = with_shared(text)
    pieces, done = [], 0
    for match in re.finditer(r"\b__global__\b", text):
        start = max(done, statement_start(text, match.start()))
        name, opening = kernel_name(text, match.end())
        if name is None:
            continue
        head, bounds = without_launch_bounds(text[start:opening])
        pieces += [text[done:start], head.replace("__global__", "__attribute__((visibility(\"default\")))")]
        done = closing(text, opening)
        pieces.append(text[opening:done])
        body = re.compile(r"(?:\s|#[^\n]*\n)*").match(text, done).end()
        if text[body : body + 1] != "{" or re.search(r"\btemplate\s*<", head):
            continue  # a declaration, or a template, which has no symbol of its own
        end = closing(text, body)
        registration = (
            f" static ::emulation_shim::Registration emulation_kernel_{name}"
            f"(\"{name}\", &{name}, ::emulation_shim::bounds({bounds}));"
        )
        pieces += [text[done:end], registration]
        done = end
    return "".join(pieces) + text[done:]
