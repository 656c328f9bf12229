"""As much of pytools as pycuda's users touch."""
