// SPDX-License-Identifier: Apache-2.0
#include "python/convert.hpp"

#include "base/error.hpp"

namespace py = pybind11;

namespace penstock {
namespace {

py::object list_of(const Json& json) {
  py::list list(json.size());
  std::size_t i = 0;
  for (const Json& element : json) list[i++] = to_python(element);
  return list;
}

py::object dict_of(const Json& json) {
  py::dict dict;
  for (const auto& [key, value] : json.items()) dict[py::str(key)] = to_python(value);
  return dict;
}

void raise(const char* name, const std::exception& error) {
  const py::object type = py::module_::import("penstock.errors").attr(name);
  PyErr_SetString(type.ptr(), what_of(error).c_str());
}

void raise_input_error(const InputError& error) {
  py::list diagnostics;
  for (const Diagnostic& d : error.diagnostics())
    diagnostics.append(
        py::make_tuple(d.where.origin, d.where.line, d.where.column, d.message, render(d)));
  const py::object type = py::module_::import("penstock.errors").attr("InputError");
  const py::object raised = type(diagnostics);
  PyErr_SetObject(type.ptr(), raised.ptr());
}

}  // namespace

py::object to_python(const Json& json) {
  if (json.is_null()) return py::none();
  if (json.is_boolean()) return py::bool_(json.get<bool>());
  if (json.is_number_unsigned()) return py::int_(json.get<std::uint64_t>());
  if (json.is_number_integer()) return py::int_(json.get<std::int64_t>());
  if (json.is_number_float()) return py::float_(json.get<double>());
  if (json.is_string()) return py::str(json.get<std::string>());
  return json.is_array() ? list_of(json) : dict_of(json);
}

py::object to_python(const Value& document) {
  if (document.kind == Value::Kind::null) return py::none();
  if (document.kind == Value::Kind::scalar) {
    const auto json = Json::parse_if(document.text);
    return json && !json->is_structured() && !json->is_string() ? to_python(*json)
                                                                : py::str(document.text);
  }
  if (document.kind == Value::Kind::list) {
    py::list list;
    for (const Value& item : document.items) list.append(to_python(item));
    return list;
  }
  py::dict dict;
  for (const Value::Entry& entry : document.entries)
    dict[py::str(entry.key.text)] = to_python(entry.value);
  return dict;
}

void translate_errors() {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const InputError& error) {
      raise_input_error(error);
    } catch (const SystemError& error) {
      raise("SystemError", error);
    } catch (const InternalBug& error) {
      raise("InternalBug", error);
    }
  });
}

}  // namespace penstock
