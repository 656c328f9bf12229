"""What the tests of the GPU alone share."""
import sys

import pytest


@pytest.fixture
def emulator(request):
    """The emulation, which can say what is queued; a real device cannot."""
    if not request.config.getoption("--device").startswith("emulated"):
        pytest.skip("only the emulated driver can be asked what it has queued")
    return sys.modules["emulation"]
