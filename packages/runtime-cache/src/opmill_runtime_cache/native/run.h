// One call of a program.
#pragma once

#include "instance.h"

namespace opmill {

// Runs the program on inputs; a new tuple of outputs, or nullptr with a Python exception set. Called with the GIL. `given`, a tuple as long as
// the outputs, may hold tensors that take the place of those that the program would allocate for its outputs. `taken`, the list that `arguments`
// are the items of: it is emptied once they are accepted, and the call drops each after the step that uses it last.
PyObject* run_program(Program& program, Pool& pool, CudaAlarm& alarm, PyObject* const* arguments, size_t count, PyObject* tensor_type,
                      PyObject* error_types, PyObject* given = nullptr, PyObject* taken = nullptr);

}  // namespace opmill
