"""Bridges: the functions of this library inside the frameworks that differentiate.

    from infiniop_cy.bridges.torch import gelu, conv         # or autograd, jax, mygrad, pytensor

Each module has every activation of operators.py, and conv, by the names and with the parameters of infiniop_cy, on the
framework's own arrays. None is imported before it is named, and each needs its framework installed. docs/bridges.md
says what each supports.
"""
