#include "bindings/python/extension/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace tutti::python {

namespace nb = nanobind;

void raise(tutti_status_t code, const std::string& text) {
  const nb::object type = nb::module_::import_("tutti._errors").attr("Error");
  const nb::object error = type(code, text);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void check(tutti_status_t status) {
  if (status != TUTTI_OK) raise(status, tutti_error_text());
}

}  // namespace tutti::python
