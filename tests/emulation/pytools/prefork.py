"""Running a compiler, with the error that pycuda.compiler lets through when there is none."""

import subprocess


class ExecError(OSError):
    pass


def call_capture_output(cmdline, cwd=None, error_on_nonzero=True):
    try:
        process = subprocess.run(cmdline, cwd=cwd, capture_output=True, check=False)
    except OSError as error:
        raise ExecError(f"error invoking '{' '.join(cmdline)}': {error}") from error
    if error_on_nonzero and process.returncode:
        raise ExecError(f"status {process.returncode} invoking '{' '.join(cmdline)}': {process.stderr.decode()}")
    return process.returncode, process.stdout, process.stderr
