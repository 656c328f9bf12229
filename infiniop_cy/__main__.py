"""python -m infiniop_cy info [--json], python -m infiniop_cy infini-root"""
import argparse
import json

from infiniop_cy.capi import infini_root
from infiniop_cy.config import config, config_text


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m infiniop_cy", description="Facts about this installation.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="version, compiler, instruction sets, threads, GPU")
    info.add_argument("--json", action="store_true", help="as JSON")
    commands.add_parser("infini-root", help="folder with lib/libinfiniop.so, lib/libinfinirt.so and include/")
    arguments = parser.parse_args(argv)
    if arguments.command == "infini-root":
        print(infini_root())
        return
    print(json.dumps(config(), indent=2) if arguments.json else config_text())


if __name__ == "__main__":
    main()
