// Calls without a tuple and a dict of arguments, for an extension type and for its Python subclasses: PEP 590. CPython
// before 3.12 does not hand the flag down to those, so every class that is instantiated gets it here.
#pragma once
#include <Python.h>

// Installs the quick call in a type, unless it defines __call__ itself.
static inline void install_vectorcall(PyTypeObject *type, const PyTypeObject *base, Py_ssize_t offset) {
    if (type->tp_call != base->tp_call || (type->tp_flags & Py_TPFLAGS_HAVE_VECTORCALL)) return;
    type->tp_vectorcall_offset = offset;
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    PyType_Modified(type);
}
