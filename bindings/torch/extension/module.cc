// The extension's Python bindings.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <vector>

#include "backend.h"
#include "joining.h"

namespace tutti::torch_backend {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

Backend* ours(const BackendPointer& backend) { return dynamic_cast<Backend*>(backend.get()); }

// Returns true if groups can be split from this process group.
bool is_parent(const BackendPointer& backend) {
  const Backend* known = ours(backend);
  return known != nullptr && !known->closed();
}

BackendPointer create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                      std::chrono::milliseconds timeout) {
  return c10::make_intrusive<Backend>(join(store, rank, size, timeout), store, rank, size, timeout);
}

BackendPointer create_among(const BackendPointer& parent, const std::vector<int>& ranks,
                            const c10::intrusive_ptr<c10d::Store>& store,
                            std::chrono::milliseconds timeout) {
  return ours(parent)->split(store, ranks,
                             c10::make_intrusive<c10d::Backend::Options>("tutti", timeout));
}

}  // namespace
}  // namespace tutti::torch_backend

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace py = pybind11;
  using namespace tutti::torch_backend;
  py::module_::import("torch.distributed");  // defines the types that these functions take
  module.def("create", &create, py::call_guard<py::gil_scoped_release>());
  module.def("create_among", &create_among, py::call_guard<py::gil_scoped_release>());
  module.def("is_parent", &is_parent);
  module.def("leave_all", &leave_all, py::call_guard<py::gil_scoped_release>());
}
