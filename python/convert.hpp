// Values of ours as Python's: JSON as dict, list and numbers, errors as exceptions.
#pragma once

#include "base/json.hpp"

#include <pybind11/pybind11.h>

namespace penstock {

pybind11::object to_python(const Json& json);

/// InputError, SystemError and InternalBug become the exceptions of penstock/errors.py; the first
/// gets `diagnostics`, a list of (file, line, column, message, rendered).
void translate_errors();

}  // namespace penstock
