"""infiniop-cy check: what it takes, and its exit codes: 0 all hold, 1 something failed, 2 it could not run."""
import argparse
import contextlib
import importlib.util
import os
import sys

EPILOG = """
candidates
  --candidate MODULE:FUNCTION   f(grad_output, input, **parameters) on NumPy arrays; --arrays torch, cupy or jax for
                                theirs. conv_backward: f(grad_output, input, weight, *, stride, padding, dilation,
                                groups), giving (grad_input, grad_weight[, grad_bias]); conv: f(input, weight[, bias],
                                *, stride, ...). It may take out=, num_threads=.
  --candidate PRESET            {presets}
  --lib PATH                    a C library with the infiniop ABI
  --command LINE                a program; {{inputs}} and {{outputs}} become paths of .npy files

standards
  infiniop                      this library's own: 1 ulp in 16-bit types, 4 in float32, 16 in float64 (the default)
  ulp:N                         at most N ulp
  {published}
                                as published, docs/check.md has the sources; what they do not speak of is shown and
                                does not count

properties
{properties}

exit code: 0 all hold, 1 something failed, 2 could not run
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message):
        from infiniop_cy.check.calls import CannotRun
        raise CannotRun(f"{message} (--help lists what it takes)")


def _parser():
    from infiniop_cy.check.presets import NAMES
    from infiniop_cy.check.properties import PROPERTIES
    from infiniop_cy.check.standards import PUBLISHED
    properties = "\n".join(f"  {p.name:<21} {p.promise}" for p in PROPERTIES)
    parser = _Parser(
        prog="infiniop-cy check", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Is my operator right, where is it not, and what shows it?",
        epilog=EPILOG.format(presets=", ".join(NAMES), published=", ".join(PUBLISHED), properties=properties))
    parser.add_argument("operator", nargs="?", help="such as gelu_backward, conv or conv_backward")
    parser.add_argument("--all", action="store_true", help="every operator that the candidate has")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--candidate", metavar="NAME", help="module:function, or a preset")
    which.add_argument("--lib", metavar="PATH", help="a C library with the infiniop ABI")
    which.add_argument("--command", metavar="LINE", help="a program, with {inputs} and {outputs} in its arguments")
    parser.add_argument("--symbols", metavar="NAME", help="with --lib: the name in its symbols, e.g. GeLUBackward")
    parser.add_argument("--arrays", default="numpy", help="what the function takes: numpy, torch, cupy, jax")
    parser.add_argument("--device", help="where torch or JAX arrays lie, e.g. cuda")
    parser.add_argument("--dtype", help="comma-separated: float16,bfloat16,float32,float64 (default: all)")
    parser.add_argument("--parameter", metavar="NAME=VALUE", action="append", default=[],
                        help="check with this parameter only, rather than the default and others; repeatable")
    parser.add_argument("--standard", default="infiniop", help="infiniop, ulp:N or a published one")
    parser.add_argument("--ftz", action="store_true", help="subnormal inputs and results may be flushed to 0")
    parser.add_argument("--exhaustive", action="store_true", help="float32: all 2**32 inputs; minutes")
    parser.add_argument("--resume", metavar="FILE", help="keep the state of an exhaustive run there, and go on from it")
    parser.add_argument("--quick", action="store_true",
                        help="smaller samples; no other numbers of threads, and no new process")
    parser.add_argument("--only", metavar="PROPERTY", action="append", default=[], help="show these alone; repeatable")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for one call (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    parser.add_argument("--junit", metavar="FILE", help="write a JUnit report there")
    parser.add_argument("--plot", metavar="FILE", help="draw error in ulp against x, beside torch's where there is one")
    parser.add_argument("--repro", metavar="FILE", help="write a script of the worst case that needs NumPy alone")
    return parser


def _spec(arguments):
    from infiniop_cy.check.candidates import Spec
    from infiniop_cy.check.presets import NAMES
    if arguments.lib:
        return Spec("library", arguments.lib, symbols=arguments.symbols,
                    one_form=bool(arguments.symbols and arguments.parameter))
    if arguments.command:
        return Spec("program", arguments.command)
    kind = "preset" if arguments.candidate in NAMES else "python"
    return Spec(kind, arguments.candidate, arrays=arguments.arrays, device=arguments.device)


def _choices(arguments, operators, dtypes):
    """(operators, dtypes, parameters) that are asked for. Raises CannotRun."""
    from infiniop_cy.check.calls import CannotRun
    from infiniop_cy.check.parameters import parse
    if arguments.all == bool(arguments.operator):
        raise CannotRun("expected an operator, or --all")
    chosen = operators if arguments.all else (arguments.operator,)
    for operator in chosen:
        if operator not in operators:
            raise CannotRun(f"{operator}: expected one of {', '.join(operators)}")
    wanted = arguments.dtype.split(",") if arguments.dtype else dtypes
    for dtype in wanted:
        if dtype not in dtypes:
            raise CannotRun(f"--dtype {dtype}: expected {', '.join(dtypes)}")
    return chosen, wanted, parse(arguments.parameter, chosen)


def _refuse_contradictions(arguments, dtypes):
    """Raise CannotRun for what would be found out after minutes, or do nothing."""
    from infiniop_cy.check.calls import CannotRun
    from infiniop_cy.check.exhaustive import states_in
    if arguments.plot and importlib.util.find_spec("matplotlib") is None:
        raise CannotRun("--plot needs matplotlib: pip install 'infiniop_cy[check-plot]'")
    for option in ("json", "junit", "plot", "repro", "resume"):
        path = getattr(arguments, option)
        folder = os.path.dirname(os.path.abspath(path or "."))
        if path and (os.path.isdir(path) or not os.access(folder, os.W_OK)):
            raise CannotRun(f"--{option} {path}: cannot be written")
    if not arguments.timeout > 0:
        raise CannotRun(f"--timeout {arguments.timeout:g}: expected more than 0 seconds")
    if arguments.exhaustive and "float32" not in dtypes:
        raise CannotRun("--exhaustive is about float32 (every input of the 16-bit types is tried anyway)")
    if arguments.resume and not arguments.exhaustive:
        raise CannotRun("--resume is of use with --exhaustive alone")
    if arguments.resume:
        states_in(arguments.resume)
    if arguments.arrays != "numpy" and (arguments.lib or arguments.command or ":" not in arguments.candidate):
        raise CannotRun(f"--arrays {arguments.arrays} is about --candidate MODULE:FUNCTION")
    if arguments.symbols and not arguments.lib:
        raise CannotRun("--symbols is about --lib")


def _settings(arguments):
    from infiniop_cy.check.calls import CannotRun
    from infiniop_cy.check.properties import BY_NAME
    from infiniop_cy.check.runner import Settings
    from infiniop_cy.check.standards import standard_of
    for name in arguments.only:
        if name not in BY_NAME:
            raise CannotRun(f"--only {name}: expected one of {', '.join(BY_NAME)}")
    return Settings(standard=standard_of(arguments.standard), ftz=arguments.ftz, quick=arguments.quick,
                    exhaustive=arguments.exhaustive, resume=arguments.resume, threads=not arguments.quick,
                    seed=arguments.seed, only=tuple(arguments.only))


def run(words):
    """The exit code for these words of the command line."""
    try:
        import ml_dtypes  # noqa: F401
        import mpmath  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"infiniop-cy check needs {error.name}: pip install 'infiniop_cy[check]'", file=sys.stderr)
        return 2
    from infiniop_cy.check.calls import CannotRun
    try:
        return _run(_parser().parse_args(words))
    except CannotRun as error:
        print(f"infiniop-cy check: {error}", file=sys.stderr)
        return 2


def _run(arguments):
    from rich.console import Console

    from infiniop_cy.check import report, runner
    from infiniop_cy.check.calls import CannotRun
    from infiniop_cy.check.session import Session
    chosen, dtypes, given = _choices(arguments, runner.OPERATORS, runner.DTYPES)
    settings, spec = _settings(arguments), _spec(arguments)
    _refuse_contradictions(arguments, dtypes)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    results = []
    with Session(spec, arguments.timeout) as session, _progress(settings) as tell:
        for operator, case, dtype in runner.subjects(chosen, dtypes, given, settings.quick):
            tell(f"{case or operator} {dtype}")
            results.append(runner.check(session, operator, case, dtype, settings))
    if all(result.not_offered for result in results):
        raise CannotRun(f"{spec}: {results[0].not_offered}")
    if not any(result.verdicts for result in results):
        raise CannotRun(f"--only {', '.join(arguments.only)}: no property of {', '.join(chosen)}")
    report.show(console, results, settings.standard, arguments.standard, str(spec))
    facts = (results, settings.standard, arguments.standard, str(spec))
    if arguments.json:
        report.write_json(arguments.json, *facts)
    if arguments.junit:
        report.write_junit(arguments.junit, *facts)
    if arguments.repro:
        from infiniop_cy.check import repro
        repro.write(arguments.repro, spec, results, settings.standard)
    if arguments.plot:
        from infiniop_cy.check import plot
        plot.draw(arguments.plot, spec, results, arguments.timeout)
    return 1 if any(result.failed(settings.standard) for result in results) else 0


@contextlib.contextmanager
def _progress(settings):
    """On a terminal: what is being checked, and a bar for exhaustive runs. Gives what to tell it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn
    console = Console(stderr=True)
    if not settings.exhaustive:
        if console.is_terminal:
            with console.status("") as status:
                yield status.update
        else:
            yield lambda what: None
        return
    with Progress("{task.description}", BarColumn(), "{task.percentage:.1f} %", TimeRemainingColumn(), transient=True,
                  console=console) as progress:
        tasks = {}

        def advance(name, done, total):
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done)
        settings.progress = advance
        yield lambda what: None
