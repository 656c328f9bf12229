"""The compiled core: see _core.pyx."""
