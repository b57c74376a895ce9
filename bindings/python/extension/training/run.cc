#include "bindings/python/extension/training/run.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "bindings/c/communicator_of.h"
#include "bindings/python/extension/training/interrupts.h"
#include "training/models/gpt.h"
#include "training/setup/report.h"

namespace tutti::python {

namespace nb = nanobind;

namespace {

Communicator communicator_in(const nb::capsule& capsule) {
  return communicator_of(static_cast<tutti_comm_t*>(capsule.data("tutti_comm_t")));
}

double units_of(training::Session& session) {
  return static_cast<double>(session.model().targets_per_sample());
}

}  // namespace

// Runs work() without the GIL and returns its result or throws its exception. Raises the exception
// of a signal handler that ran meanwhile.
template <typename Work>
auto Run::without_gil(const Communicator& world, const Work& work) {
  if (busy_) {
    throw Error(ErrorCode::invalid_argument, "another thread is inside a call of this run",
                {.remedy = "make the calls of a run one after the other"});
  }
  struct Busy {
    explicit Busy(bool& flag) : flag(flag) { flag = true; }
    ~Busy() { flag = false; }
    bool& flag;
  } const busy(busy_);
  Interrupts interrupts(world);
  try {
    const nb::gil_scoped_release release;
    return work();
  } catch (const Error&) {
    interrupts.raise();
    throw;
  }
}

Run::Run(const nb::capsule& communicator, const std::vector<std::string>& words,
         const std::string& configuration) {
  const Communicator world = communicator_in(communicator);
  const Json given = Json::parse(configuration);
  session_ = without_gil(world, [&] { return training::begin_session(world, words, given); });
}

training::Session& Run::session() {
  if (session_ == nullptr) throw Error(ErrorCode::invalid_argument, "the run is closed");
  if (process_ != ::getpid()) {
    throw Error(ErrorCode::unsupported, "the run belongs to the parent of this forked process",
                {.remedy = "start processes by 'spawn'"});
  }
  return *session_;
}

std::optional<std::string> Run::next() {
  training::Session& session = this->session();
  return without_gil(session.world(), [&]() -> std::optional<std::string> {
    const std::optional<training::StepReport> report = session.trainer().next();
    if (!report) return std::nullopt;
    return json_of(*report, units_of(session)).dump();
  });
}

std::string Run::finish() {
  training::Session& session = this->session();
  return without_gil(session.world(), [&] {
    return json_of(session.trainer().finish(), session.data(), units_of(session),
                   session.world().size())
        .dump();
  });
}

training::Evaluation Run::evaluate() {
  training::Session& session = this->session();
  return without_gil(session.world(), [&] { return session.trainer().validate(); });
}

void Run::save() {
  training::Session& session = this->session();
  without_gil(session.world(), [&] { session.trainer().save(); });
}

std::string Run::sample(const std::string& prompt, const std::string& tokenizer,
                        const training::GenerationOptions& options) {
  training::Session& session = this->session();
  auto* const model = dynamic_cast<training::Decoder*>(&session.model());
  training::Replica& replica = session.trainer().replica();
  if (model == nullptr || session.options().mesh.pipeline > 1 ||
      session.options().mesh.tensor > 1 || !replica.storage().whole_values()) {
    throw Error(ErrorCode::unsupported,
                "sample() needs a language model whose parameters are all on this rank",
                {.remedy = "with pp, tp or zero=3 save the run, and use `tutti sample`"});
  }
  return without_gil(session.world(), [&] {
    replica.finish_values();
    std::string text;
    generate_text(*model, session.options().training.replica.storage.dtype, tokenizer, prompt,
                  options, [&](const std::string& more) { text += more; });
    return text;
  });
}

void Run::close() {
  if (session_ == nullptr) return;
  if (process_ != ::getpid()) {
    static_cast<void>(session_.release());  // its threads are in the parent process
    return;
  }
  if (busy_) {
    throw Error(ErrorCode::invalid_argument, "a thread is inside a call of this run",
                {.remedy = "close the run after the call has returned"});
  }
  const nb::gil_scoped_release release;
  session_.reset();
}

std::string Run::model() { return training::in_words(session().model().configuration()); }
std::string Run::configuration() { return session().options().training.configuration.dump(); }
uint64_t Run::steps() { return session().trainer().steps(); }
uint64_t Run::step() { return session().trainer().step(); }

training::ParameterValues Run::values() {
  training::Session& session = this->session();
  return {session.trainer().replica(), session.model()};
}

std::vector<std::string> Run::parameters() {
  const training::ParameterValues values = this->values();
  std::vector<std::string> names;
  for (size_t i = 0; i < values.specs().size(); ++i) {
    if (values.has(static_cast<int>(i))) names.push_back(values.specs()[i].name);
  }
  return names;
}

int Run::index_of(const std::string& name) {
  const training::ParameterValues values = this->values();
  const auto& specs = values.specs();
  const auto found = std::ranges::find(specs, name, &training::ParameterSpec::name);
  const int index = static_cast<int>(found - specs.begin());
  if (found == specs.end() || !values.has(index)) throw nb::key_error(name.c_str());
  return index;
}

std::vector<int64_t> Run::shape(const std::string& name) {
  return values().specs()[static_cast<size_t>(index_of(name))].shape;
}

nb::object Run::read(const std::string& name) {
  const int index = index_of(name);
  training::ParameterValues values = this->values();
  const training::ParameterSpec& spec = values.specs()[static_cast<size_t>(index)];
  const std::vector<size_t> shape(spec.shape.begin(), spec.shape.end());
  Memory<float> memory = without_gil(session().world(), [&] { return values.in_place(index); });
  const bool in_place = memory != nullptr;
  if (!in_place) {
    const auto count = static_cast<size_t>(spec.count());
    memory = std::make_shared<float[]>(count);
    without_gil(session().world(), [&] { values.read(index, {memory.get(), count}); });
  }
  float* const first = memory.get();
  auto kept = std::make_unique<Memory<float>>(std::move(memory));
  const nb::capsule owner(kept.get(),
                          [](void* held) noexcept { delete static_cast<Memory<float>*>(held); });
  static_cast<void>(kept.release());  // now owned by the capsule
  if (in_place) {
    return nb::ndarray<nb::numpy, float>(first, shape.size(), shape.data(), owner).cast();
  }
  return nb::ndarray<nb::numpy, const float>(first, shape.size(), shape.data(), owner).cast();
}

void Run::write(const std::string& name, const Values& values) {
  const int index = index_of(name);
  training::ParameterValues all = this->values();
  const training::ParameterSpec& spec = all.specs()[static_cast<size_t>(index)];
  if (std::cmp_not_equal(values.size(), spec.count())) {
    throw Error(ErrorCode::invalid_argument,
                cat(name, " has ", spec.count(), " values, not ", values.size()));
  }
  without_gil(session().world(), [&] { all.write(index, {values.data(), values.size()}); });
}

}  // namespace tutti::python
