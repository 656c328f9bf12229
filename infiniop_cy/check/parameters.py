"""NAME=VALUE of the command line as parameters of an operator, by the types of its row."""
from infiniop_cy.check.calls import CannotRun
from infiniop_cy.operators import BY_NAME


def _flag(text):
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]


def parse(words, operators):
    """{name: value}. Raises CannotRun for what no row of these operators has."""
    given = {}
    known = {p.name: p for name in operators if name in BY_NAME for p in BY_NAME[name].parameters}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in known:
            raise CannotRun(f"--parameter {word}: expected NAME=VALUE, with NAME of {', '.join(known) or 'none here'}")
        parameter = known[name]
        if parameter.choices:
            if text not in parameter.choices:
                raise CannotRun(f"--parameter {word}: expected one of {', '.join(parameter.choices)}")
            given[name] = text
        else:
            read = _flag if isinstance(parameter.default, bool) else float
            try:
                given[name] = read(text)
            except (KeyError, ValueError):
                expected = "true or false" if read is _flag else "a number"
                raise CannotRun(f"--parameter {word}: expected {expected}") from None
    return given
