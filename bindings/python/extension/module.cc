// The extension module tutti._tutti: functions that Python cannot implement. The public API is in
// tutti/.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/extension/communicator.h"
#include "bindings/python/extension/errors.h"
#include "bindings/python/extension/window.h"
#include "bindings/python/extension/work.h"

namespace tutti::python {
namespace {

namespace nb = nanobind;

using Counts = std::optional<std::vector<uint64_t>>;

// Names of the wire formats, indexed by tutti_wire_t.
constexpr std::array kWireFormats = {"plain", "bf16", "f16",  "f8e4m3", "f8e5m2",
                                     "mx8",   "mx4",  "int8", "sign"};

tutti_wire_t wire_from(const std::string& name) {
  const auto found = std::ranges::find(kWireFormats, name);
  if (found != kWireFormats.end()) {
    return static_cast<tutti_wire_t>(found - kWireFormats.begin());
  }
  std::string known;
  for (const char* one : kWireFormats) known += (known.empty() ? "" : ", ") + std::string(one);
  raise(TUTTI_INVALID_ARGUMENT, "unknown wire format '" + name + "': expected one of " + known);
}

Work start(nb::handle self, tutti_collective_t collective, nb::handle input, nb::handle output,
           nb::handle result, tutti_op_t op, int32_t root, const Counts& input_counts,
           const Counts& output_counts, int32_t tag, bool may_be_shorter,
           std::optional<double> timeout, const std::optional<std::string>& algorithm,
           bool deterministic, int32_t queue, const std::optional<std::string>& wire) {
  Request request{
      .collective = collective, .input = input, .output = output, .op = op, .root = root};
  if (input_counts) request.input_counts = &*input_counts;
  if (output_counts) request.output_counts = &*output_counts;
  request.options.tag = tag;
  request.options.may_be_shorter = may_be_shorter ? 1 : 0;
  // A timeout of 0 means no deadline in Python, but the setting TUTTI_TIMEOUT in C.
  if (timeout) request.options.timeout = *timeout == 0 ? INFINITY : *timeout;
  if (algorithm) request.options.algorithm = algorithm->c_str();
  request.options.deterministic = deterministic ? 1 : 0;
  request.options.queue = queue;
  if (wire) request.options.wire = wire_from(*wire);
  auto& communicator = *nb::inst_ptr<Communicator>(self);
  return {self, communicator.start(request), result,
          collective == TUTTI_RECV || collective == TUTTI_RECV_REDUCE};
}

nb::object message_object(const std::optional<tutti_message_t>& message) {
  if (!message) return nb::none();
  return nb::module_::import_("tutti._arrays")
      .attr("message")(message->source, message->tag, message->dtype, message->count);
}

void bind_communicator(nb::module_& module) {
  nb::class_<Communicator>(module, "Communicator", nb::is_weak_referenceable())
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("closed", &Communicator::closed)
      .def_prop_ro(
          "capsule",
          [](const Communicator& self) { return nb::capsule(self.handle(), "tutti_comm_t"); },
          nb::for_getter(nb::sig("def capsule(self) -> typing.Any")),
          "The library's handle, for tutti._training.")
      .def("start", &start, nb::arg("collective"), nb::arg("input").none(),
           nb::arg("output").none(), nb::arg("result").none(),
           nb::arg("op") = tutti_op_t{TUTTI_SUM}, nb::arg("root") = 0,
           nb::arg("input_counts") = nb::none(), nb::arg("output_counts") = nb::none(),
           nb::arg("tag") = 0, nb::arg("may_be_shorter") = false, nb::arg("timeout") = nb::none(),
           nb::arg("algorithm") = nb::none(), nb::arg("deterministic") = false,
           nb::arg("queue") = 0, nb::arg("wire") = nb::none())
      .def("open_queues", &Communicator::open_queues, nb::arg("count"))
      .def("split", &Communicator::split, nb::arg("color"), nb::arg("key"),
           nb::sig("def split(self, color: int, key: int) -> Communicator | None"))
      .def("create", &Communicator::create, nb::arg("ranks"), nb::arg("tag"))
      .def("shrink", &Communicator::shrink)
      .def("grow", &Communicator::grow, nb::arg("count"))
      .def("agree", &Communicator::agree, nb::arg("flags"))
      .def(
          "probe",
          [](Communicator& self, int32_t source, int32_t tag, bool wait) {
            return message_object(self.probe(source, tag, wait));
          },
          nb::arg("source"), nb::arg("tag"), nb::arg("wait"),
          nb::sig("def probe(self, source: int, tag: int, wait: bool) -> tutti._arrays.Message | "
                  "None"))
      .def("abort", &Communicator::abort, nb::arg("reason"))
      .def("close", &Communicator::close);
}

void bind_work(nb::module_& module) {
  nb::class_<Work>(
      module, "Work",
      "A call in flight, which the methods that end in _async return. `await` it, or "
      "call wait(). The call's arrays\nare kept alive until the call is complete, even "
      "if the Work is dropped, and must not be touched before.\nOne thread at a time "
      "may wait.")
      .def("wait", &Work::wait, nb::sig("def wait(self) -> typing.Any"),
           "Blocks until the call is complete; returns its result, or raises its error. May be "
           "repeated.\nAfter a KeyboardInterrupt the call continues.")
      .def("wait_for", &Work::wait_for, nb::arg("seconds"),
           "Waits for at most `seconds`; returns True if the call is complete.")
      .def("test", &Work::test,
           "Makes progress without blocking; returns True if the call is complete.")
      .def("abort", &Work::abort, nb::arg("reason") = "Work.abort()",
           "Aborts the call's communicator on all its ranks unless the call is complete.")
      .def_prop_ro(
          "message", [](const Work& self) { return message_object(self.message()); },
          nb::for_getter(nb::sig("def message(self) -> tutti._arrays.Message")),
          "The tutti.Message of a completed receive.")
      .def(
          "__await__",
          [](nb::handle self) {
            return nb::module_::import_("tutti._waiting")
                .attr("wait_in_loop")(self)
                .attr("__await__")();
          },
          nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, typing.Any]"))
      .def("_finish", &Work::finish, nb::sig("def _finish(self) -> typing.Any"),
           "wait(), but an interrupt aborts the communicator.");
}

void bind_window(nb::module_& module) {
  nb::class_<Window>(module, "Window", nb::is_weak_referenceable())
      .def(nb::init<Communicator&, nb::handle, uint64_t, bool>(), nb::arg("communicator"),
           nb::arg("memory").none(), nb::arg("bytes"), nb::arg("members_may_die"))
      .def("bytes", &Window::bytes, nb::arg("rank"))
      .def_prop_ro(
          "memory",
          [](nb::handle self) {
            const auto& window = *nb::inst_ptr<Window>(self);
            const size_t bytes = window.part().size();
            return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(window.part().data(), {bytes},
                                                                self);
          },
          nb::for_getter(nb::sig("def memory(self) -> typing.Any")))
      .def_prop_ro("closed", &Window::closed)
      .def("put", &Window::put, nb::arg("array"), nb::arg("rank"), nb::arg("offset"))
      .def("get", &Window::get, nb::arg("array"), nb::arg("rank"), nb::arg("offset"))
      .def("accumulate", &Window::accumulate, nb::arg("array"), nb::arg("rank"), nb::arg("offset"),
           nb::arg("op"))
      .def("compare_and_swap", &Window::compare_and_swap, nb::arg("dtype"), nb::arg("expected"),
           nb::arg("desired"), nb::arg("rank"), nb::arg("offset"))
      .def("signal", &Window::signal, nb::arg("rank"), nb::arg("slot"), nb::arg("count"))
      .def("wait_signal", &Window::wait_signal, nb::arg("slot"), nb::arg("count"))
      .def("flush", &Window::flush, nb::arg("rank"))
      .def("fence", &Window::fence)
      .def("free", &Window::free)
      .def("close", &Window::close);
}

NB_MODULE(_tutti, module) {
  module.doc() = "The C interface of the library, for the package's own use.";
  module.def("version", &tutti_version);
  module.def("wire_formats",
             [] { return std::vector<std::string>(kWireFormats.begin(), kWireFormats.end()); });
  module.def(
      "init",
      [](int32_t rank, int32_t size, const std::optional<std::string>& master_address,
         int32_t master_port, const std::optional<std::string>& rendezvous_file) {
        return join({rank, size, master_address, master_port, rendezvous_file});
      },
      nb::arg("rank"), nb::arg("size"), nb::arg("master_address").none(), nb::arg("master_port"),
      nb::arg("rendezvous_file").none());
  bind_communicator(module);
  bind_work(module);
  bind_window(module);
}

}  // namespace
}  // namespace tutti::python
