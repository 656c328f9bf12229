// The three calls that Cython's prange makes to let go of the interpreter's lock, for a library without an interpreter.
// Local to libinfiniop.so, whose callers hold no lock that it could give up.
extern "C" {
int PyGILState_Check(void) { return 0; }
void *PyEval_SaveThread(void) { return nullptr; }
void PyEval_RestoreThread(void *) {}
}
