"""Random calls without end, each from its number alone: `make fuzz`, `python -m fuzz --help` from tests/."""
