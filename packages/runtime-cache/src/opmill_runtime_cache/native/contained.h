// Entries that Python calls: no C++ exception leaves them.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cxxabi.h>

#include <exception>
#include <new>
#include <type_traits>

namespace opmill {

template <auto Function>
struct Contained;

template <typename Result, typename... Arguments, Result (*Function)(Arguments...)>
struct Contained<Function> {
  static Result call(Arguments... arguments) {
    try {
      return Function(arguments...);
    } catch (const abi::__forced_unwind&) {
      throw;  // the thread ends here: Python does so to threads that outlive it
    } catch (const std::bad_alloc&) {
      if (!PyErr_Occurred()) PyErr_NoMemory();
    } catch (const std::exception& error) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    } catch (...) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "an unknown C++ exception");
    }
    if constexpr (std::is_pointer_v<Result>) return nullptr;
    else return static_cast<Result>(-1);
  }
};

// The function as one that may stand in the tables of types and modules: an exception becomes Python's, nullptr or -1 is returned.
template <auto Function>
constexpr auto contained = &Contained<Function>::call;

}  // namespace opmill
