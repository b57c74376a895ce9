// Python's training run.
//
// Everything here is guarded by the GIL, which is released while the library works.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/language/generation.h"
#include "training/run/parameter_values.h"
#include "training/setup/session.h"

namespace tutti::python {

class Run {
 public:
  // Prepares a run. `communicator`: a capsule of a tutti_comm_t. `configuration`: settings in JSON.
  // `words`: options as on the command line, which override the configuration.
  Run(const nanobind::capsule& communicator, const std::vector<std::string>& words,
      const std::string& configuration);
  ~Run() { close(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Run the training. next() runs a step and returns the report of the step, or nullopt if there is
  // no further step. finish() ends the run and returns the report of the run. Both have the format
  // of `tutti train
  // --json`.
  std::optional<std::string> next();
  std::string finish();
  training::Evaluation evaluate();
  void save();
  std::string sample(const std::string& prompt, const std::string& tokenizer,
                     const training::GenerationOptions& options);
  void close();

  std::string model();
  std::string configuration();
  uint64_t steps();
  uint64_t step();
  // Returns the names of the parameters that this rank holds.
  std::vector<std::string> parameters();
  std::vector<int64_t> shape(const std::string& name);
  // Returns a parameter as a writable view or, if that is not possible, as a read-only copy.
  nanobind::object read(const std::string& name);
  using Values = nanobind::ndarray<const float, nanobind::c_contig, nanobind::device::cpu>;
  void write(const std::string& name, const Values& values);

 private:
  template <typename Work>
  auto without_gil(const Communicator& world, const Work& work);
  training::Session& session();
  training::ParameterValues values();
  int index_of(const std::string& name);

  std::unique_ptr<training::Session> session_;
  bool busy_ = false;  // true: a thread is inside a call
  pid_t process_ = ::getpid();
};

}  // namespace tutti::python
