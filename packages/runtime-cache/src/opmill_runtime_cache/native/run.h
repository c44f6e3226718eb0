// One call of a program.
#pragma once

#include "instance.h"

namespace opmill {

// Runs the program on inputs; a new tuple of outputs, or nullptr with a Python exception set. Called with the GIL.
PyObject* run_program(Program& program, Pool& pool, CudaAlarm& alarm, PyObject* const* arguments, size_t count, PyObject* tensor_type, PyObject* error_types);

}  // namespace opmill
