// SPDX-License-Identifier: Apache-2.0
// Values of ours as Python's: JSON as dict, list and numbers, errors as exceptions.
#pragma once

#include "base/json.hpp"
#include "scenarios/document.hpp"

#include <pybind11/pybind11.h>

namespace penstock {

pybind11::object to_python(const Json& json);
/// A YAML document. Scalars that are JSON's numbers, true, false and null become those, others
/// stay texts.
pybind11::object to_python(const Value& document);

/// InputError, SystemError and InternalBug become the exceptions of penstock/errors.py; the first
/// gets `diagnostics`, a list of (file, line, column, message, rendered).
void translate_errors();

}  // namespace penstock
