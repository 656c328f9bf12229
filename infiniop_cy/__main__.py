"""infiniop-cy info, infini-root, build-kernels and check; also as python -m infiniop_cy."""
import argparse
import json
import sys

from infiniop_cy.backends import cuda_prebuild
from infiniop_cy.capi import infini_root
from infiniop_cy.config import config, config_text


def main(argv=None):
    """The command; its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["check"]:  # with its own parser, since what it needs is an extra
        from infiniop_cy.check.cli import run
        return run(words[1:])
    parser = argparse.ArgumentParser(prog="infiniop-cy", description="Facts about this installation, tests of others.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="version, compiler, instruction sets, threads, GPU")
    info.add_argument("--json", action="store_true", help="as JSON")
    commands.add_parser("infini-root", help="folder with lib/libinfiniop.so, lib/libinfinirt.so and include/")
    build = commands.add_parser("build-kernels", help="compile the CUDA kernels before they are needed",
                                description=cuda_prebuild.DESCRIPTION)
    cuda_prebuild.add_arguments(build)
    commands.add_parser("check", help="is a gradient operator right, where is it not, and what shows it")
    arguments = parser.parse_args(words)
    if arguments.command == "build-kernels":
        return cuda_prebuild.main(arguments)
    if arguments.command == "infini-root":
        print(infini_root())
    else:
        print(json.dumps(config(), indent=2) if arguments.json else config_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
