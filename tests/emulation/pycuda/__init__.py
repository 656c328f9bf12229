"""The part of PyCUDA that the library uses, over the driver API with ctypes: for tests where PyCUDA cannot be built."""

VERSION = (2026, 1)
VERSION_STATUS = "emulation"
VERSION_TEXT = "2026.1emulation"
