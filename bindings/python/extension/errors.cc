#include "bindings/python/extension/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace tutti::python {

namespace nb = nanobind;

Failure last_failure(tutti_status_t code) { return {code, tutti_error_text(), tutti_error_rank()}; }

void raise(const Failure& failure) {
  const nb::object type = nb::module_::import_("tutti._errors").attr("Error");
  const nb::object rank = failure.rank < 0 ? nb::none() : nb::object(nb::int_(failure.rank));
  const nb::object error = type(failure.code, failure.text, rank);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void raise(tutti_status_t code, const std::string& text) { raise(Failure{code, text}); }

void check(tutti_status_t status) {
  if (status != TUTTI_OK) raise(last_failure(status));
}

}  // namespace tutti::python
