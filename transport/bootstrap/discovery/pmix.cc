#include "transport/bootstrap/discovery/pmix.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/text.h"

namespace tutti::bootstrap {

namespace {

// The part of PMIx's stable ABI that is used (pmix_common.h of version 3 and newer), so that
// building needs no PMIx.
using Status = int;
constexpr Status kSuccess = 0;
constexpr uint8_t kGlobal = 3;
constexpr uint16_t kString = 3;
constexpr uint16_t kUint32 = 14;
constexpr uint32_t kAllRanks = UINT32_MAX - 1;

struct Proc {
  char nspace[256];
  uint32_t rank;
};

struct Value {
  uint16_t type;
  union {
    char* string;
    uint32_t uint32;
    char largest[24];
    void* aligned;
  } data;
};

using OnValue = void (*)(Status status, Value* value, void* data);

struct Library {
  Status (*init)(Proc* self, void* info, size_t infos) = nullptr;
  Status (*finalize)(const void* info, size_t infos) = nullptr;
  Status (*put)(uint8_t scope, const char* key, Value* value) = nullptr;
  Status (*commit)() = nullptr;
  Status (*get)(const Proc* proc, const char* key, const void* info, size_t infos,
                Value** value) = nullptr;
  Status (*get_nb)(const Proc* proc, const char* key, const void* info, size_t infos, OnValue call,
                   void* data) = nullptr;
  const char* (*error_string)(Status status) = nullptr;
};

Error unusable(const std::string& what, const std::string& cause) {
  return Error(
      ErrorCode::bootstrap, "the launcher's PMIx is unusable: " + what,
      {.cause = cause,
       .remedy = "install PMIx's library (Debian and Ubuntu: apt-get install libpmix2), or "
                 "set MASTER_ADDR and MASTER_PORT on all ranks (mpirun -x MASTER_ADDR=HOST "
                 "-x MASTER_PORT=29500)"});
}

template <typename Call>
void find(void* handle, const char* name, Call& call) {
  call = reinterpret_cast<Call>(::dlsym(handle, name));
  if (call == nullptr)
    throw unusable(cat("PMIx's library lacks ", name), "the library has another version");
}

Library load() {
  // The library is found by the loader, because the launcher may put its libraries into
  // LD_LIBRARY_PATH.
  void* const handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) throw unusable(::dlerror(), "the library is not installed on this host");
  Library library;
  find(handle, "PMIx_Init", library.init);
  find(handle, "PMIx_Finalize", library.finalize);
  find(handle, "PMIx_Put", library.put);
  find(handle, "PMIx_Commit", library.commit);
  find(handle, "PMIx_Get", library.get);
  find(handle, "PMIx_Get_nb", library.get_nb);
  find(handle, "PMIx_Error_string", library.error_string);
  return library;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

void require_success(Status status, const char* call) {
  if (status == kSuccess) return;
  throw unusable(cat(call, ": ", library().error_string(status)),
                 "the launcher has ended, or speaks another version of PMIx");
}

Proc proc_of(const std::string& name, uint32_t rank) {
  Proc proc{};
  std::strncpy(proc.nspace, name.c_str(), sizeof proc.nspace - 1);
  proc.rank = rank;
  return proc;
}

// This process as a client of PMIx. There is one per process. PMIx counts its users, which may
// include MPI, and cannot be initialised again after the last one has finalised it.
class PmixClient {
 public:
  PmixClient() {
    Proc self{};
    require_success(library().init(&self, nullptr, 0), "PMIx_Init");
    name_ = self.nspace;
  }
  PmixClient(const PmixClient&) = delete;
  PmixClient& operator=(const PmixClient&) = delete;
  // Finalises. Otherwise the launcher would treat the exit as a crash. Pending requests fail or are
  // dropped.
  ~PmixClient() {
    // In a forked child the connection is the parent's.
    if (::getpid() == pid_) library().finalize(nullptr, 0);
  }

  const std::string& name() const { return name_; }

 private:
  const pid_t pid_ = ::getpid();
  std::string name_;
};

PmixClient& pmix_client() {
  static PmixClient instance;
  return instance;
}

int next_pmix_generation() {
  static std::atomic<int> generation = 0;
  return ++generation;
}

}  // namespace

// The answer to a request, which PMIx delivers on its own thread.
struct PmixRendezvous::Answer {
  std::mutex mutex;
  bool there = false;
  std::optional<std::string> value;

  static void take(Status status, Value* value, void* data) {
    const std::unique_ptr<std::shared_ptr<Answer>> self(
        static_cast<std::shared_ptr<Answer>*>(data));
    Answer& answer = **self;
    const std::lock_guard lock(answer.mutex);
    answer.there = true;
    if (status == kSuccess && value != nullptr && value->type == kString) {
      answer.value = value->data.string;
    }
  }
};

PmixRendezvous::PmixRendezvous()
    : namespace_(pmix_client().name()), generation_(next_pmix_generation()) {}

int PmixRendezvous::job_size() const {
  const Proc all = proc_of(namespace_, kAllRanks);
  Value* value = nullptr;
  require_success(library().get(&all, "pmix.job.size", nullptr, 0, &value), "PMIx_Get");
  if (value == nullptr || value->type != kUint32 || value->data.uint32 == 0) {
    throw unusable("the server does not report the number of ranks",
                   "the library has another version");
  }
  return static_cast<int>(value->data.uint32);
}

std::string PmixRendezvous::unique(const std::string& key) const {
  return cat("tutti.", generation_, ".", key);
}

void PmixRendezvous::set(const std::string& key, const std::string& value) {
  std::string text = value;
  Value wrapped{};
  wrapped.type = kString;
  wrapped.data.string = text.data();
  require_success(library().put(kGlobal, unique(key).c_str(), &wrapped), "PMIx_Put");
  require_success(library().commit(), "PMIx_Commit");
}

// Returns the value if it has arrived. The request stays open until rank 0 has set a value. If rank
// 0 has set another key, the request is repeated.
std::optional<std::string> PmixRendezvous::get(const std::string& key) {
  std::shared_ptr<Answer>& answer = asked_[key];
  if (answer) {
    const std::lock_guard lock(answer->mutex);
    if (!answer->there || answer->value) return answer->value;
  }
  answer = std::make_shared<Answer>();
  const Proc first = proc_of(namespace_, 0);
  auto held = std::make_unique<std::shared_ptr<Answer>>(answer);
  const Status status =
      library().get_nb(&first, unique(key).c_str(), nullptr, 0, &Answer::take, held.get());
  if (status == kSuccess) {
    [[maybe_unused]] const auto* of_the_call = held.release();
  } else {
    answer.reset();
  }
  return std::nullopt;
}

}  // namespace tutti::bootstrap
