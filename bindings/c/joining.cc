// The C interface on top of Communicator: how a program joins a job.
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/settings.h"
#include "bindings/c/handles.h"
#include "bindings/c/tutti.h"
#include "transport/bootstrap/discovery/job.h"

namespace tutti::c {
namespace {

// Adapts the caller's store functions to the bootstrap's rendezvous.
class StoreOfCaller final : public Rendezvous {
 public:
  explicit StoreOfCaller(const tutti_store_t& store) : store_(store) {
    if (store.set == nullptr || store.get == nullptr) {
      invalid("a tutti_store_t needs both set and get");
    }
  }

  std::string name() const override { return "the caller's store"; }

  void set(const std::string& key, const std::string& value) override {
    check(store_.set(key.c_str(), value.c_str(), store_.context), "set", key);
  }

  void remove(const std::string& key) override {
    if (store_.remove != nullptr) store_.remove(key.c_str(), store_.context);
  }

  std::optional<std::string> get(const std::string& key) override {
    std::array<char, TUTTI_STORE_VALUE> value{};
    const int found = store_.get(key.c_str(), value.data(), value.size(), store_.context);
    if (found < 0) check(found, "get", key);
    if (found == 0) return std::nullopt;
    return std::string(value.data(), ::strnlen(value.data(), value.size()));
  }

 private:
  static void check(int answer, const char* function, const std::string& key) {
    if (answer >= 0) return;
    throw Error(ErrorCode::bootstrap,
                cat("the caller's store failed: ", function, "(\"", key, "\") returned ", answer),
                {.cause = "the process that serves the store ended, or is unreachable"});
  }

  const tutti_store_t store_;
};

Job job_from(const tutti_init_options_t& options) {
  if (options.ranks == 0) return job_from_environment();
  constexpr int32_t kMostRanks = 1 << 24;
  if (options.ranks < 0 || options.ranks > kMostRanks || options.rank < 0 ||
      options.rank >= options.ranks) {
    invalid(cat("rank ", options.rank, " of ", options.ranks, " is out of range"));
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    invalid(cat("master_port ", options.master_port, " is not a port number"));
  }
  KnownJob known{.rank = options.rank, .size = options.ranks};
  if (options.master_address != nullptr) known.master_address = options.master_address;
  if (options.master_port != 0) known.master_port = static_cast<uint16_t>(options.master_port);
  if (options.rendezvous_file != nullptr) known.rendezvous_file = options.rendezvous_file;
  if (options.store != nullptr) {
    known.rendezvous = std::make_shared<StoreOfCaller>(known_part(options.store, "tutti_store_t"));
  }
  Job job = job_from_environment(known);
  if (options.timeout != 0) {
    job.init_timeout = nanoseconds_of(options.timeout);
  }
  return job;
}

// Logs warnings about settings, such as misspelt variables, once per process.
void log_settings_warnings() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string& warning : settings().warnings()) log(LogLevel::warning, warning);
  });
}

}  // namespace
}  // namespace tutti::c

// NOLINTBEGIN(readability-identifier-naming): C names
using tutti::c::checked;
using tutti::c::guarded;

tutti_status_t tutti_init(tutti_comm_t** comm, const tutti_init_options_t* options) {
  return guarded([&] {
    checked(comm, "the output pointer for the communicator") = nullptr;
    const auto known = tutti::c::known_part(options, "tutti_init_options_t");
    tutti::c::log_settings_warnings();
    *comm = tutti::c::handle_of(tutti::Communicator::init(tutti::c::job_from(known)));
  });
}

tutti_status_t tutti_init_begin(tutti_joining_t** joining, const tutti_init_options_t* options) {
  return guarded([&] {
    checked(joining, "the output pointer for the handle") = nullptr;
    const auto known = tutti::c::known_part(options, "tutti_init_options_t");
    tutti::c::log_settings_warnings();
    auto handle = std::make_unique<tutti_joining>();
    handle->communicator = tutti::Communicator::init_async(tutti::c::job_from(known));
    *joining = handle.release();
  });
}

tutti_status_t tutti_init_end(tutti_joining_t* joining, tutti_comm_t** comm) {
  const std::unique_ptr<tutti_joining> owned(joining);
  return guarded([&] {
    checked(comm, "the output pointer for the communicator") = nullptr;
    *comm = tutti::c::handle_of(checked(owned.get(), "the handle").communicator.get());
  });
}
// NOLINTEND(readability-identifier-naming)
