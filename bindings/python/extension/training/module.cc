// The extension module tutti._training: functions that Python cannot implement. The public API is
// in tutti/training.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>

#include "base/error.h"
#include "bindings/python/extension/training/run.h"

namespace tutti::python {
namespace {

namespace nb = nanobind;

void raise(const Error& error) {
  const nb::object type = nb::module_::import_("tutti._errors").attr("Error");
  const nb::object rank = error.rank() < 0 ? nb::none() : nb::object(nb::int_(error.rank()));
  PyErr_SetObject(type.ptr(), type(static_cast<int>(error.code()), error.what(), rank).ptr());
}

// Converts a C++ Error to tutti.Error.
void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    try {
      raise(error);
    } catch (nb::python_error& other) {
      other.restore();  // raised by a signal handler meanwhile
    }
  }
}

NB_MODULE(_training, module) {
  module.doc() = "Training in C++, for the package's own use.";
  nb::register_exception_translator(translate);
  nb::class_<Run>(module, "Run")
      .def(nb::init<const nb::capsule&, const std::vector<std::string>&, const std::string&>(),
           nb::arg("communicator"), nb::arg("words"), nb::arg("configuration"))
      .def("next", &Run::next)
      .def("finish", &Run::finish)
      .def(
          "evaluate",
          [](Run& self) {
            const training::Evaluation all = self.evaluate();
            return nb::make_tuple(all.loss, all.correct, all.targets);
          },
          nb::sig("def evaluate(self) -> tuple[float, float, int]"))
      .def("save", &Run::save)
      .def(
          "sample",
          [](Run& self, const std::string& prompt, int64_t tokens, double temperature,
             int64_t top_k, double top_p, uint64_t seed, const std::string& tokenizer,
             bool ignore_eos) {
            const std::string text = self.sample(prompt, tokenizer,
                                                 {.tokens = tokens,
                                                  .temperature = temperature,
                                                  .top_k = top_k,
                                                  .top_p = top_p,
                                                  .seed = seed,
                                                  .ignore_end = ignore_eos});
            return nb::bytes(text.data(), text.size());
          },
          nb::arg("prompt"), nb::arg("tokens"), nb::arg("temperature"), nb::arg("top_k"),
          nb::arg("top_p"), nb::arg("seed"), nb::arg("tokenizer"), nb::arg("ignore_eos"))
      .def("close", &Run::close)
      .def_prop_ro("model", &Run::model)
      .def_prop_ro("configuration", &Run::configuration)
      .def_prop_ro("steps", &Run::steps)
      .def_prop_ro("step", &Run::step)
      .def_prop_ro("parameters", &Run::parameters)
      .def("shape", &Run::shape, nb::arg("name"))
      .def("read", &Run::read, nb::arg("name"),
           nb::sig("def read(self, name: str) -> numpy.typing.NDArray[numpy.float32]"))
      .def("write", &Run::write, nb::arg("name"), nb::arg("values"));
}

}  // namespace
}  // namespace tutti::python
