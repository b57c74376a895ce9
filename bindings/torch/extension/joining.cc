#include "joining.h"

#include <cstring>
#include <string>
#include <utility>

#include "errors.h"

namespace tutti::torch_backend {

namespace {

// Adapts torch's Store to the library's store.
struct StoreOfTorch {
  c10::intrusive_ptr<c10d::Store> store;

  template <typename Action>
  static int guarded(Action action) {
    try {
      return action();
    } catch (const std::exception&) {
      return -1;
    }
  }
  static c10d::Store& from(void* context) { return *static_cast<StoreOfTorch*>(context)->store; }
  static int set(const char* key, const char* value, void* context) {
    return guarded([&] {
      from(context).set(key, std::string(value));
      return 0;
    });
  }
  static int get(const char* key, char* value, size_t bytes, void* context) {
    return guarded([&] {
      if (!from(context).check({key})) return 0;
      const std::string text = from(context).get_to_str(key);
      if (text.size() >= bytes) return -2;
      std::memcpy(value, text.c_str(), text.size() + 1);
      return 1;
    });
  }
  static void remove(const char* key, void* context) {
    guarded([&] { return from(context).deleteKey(key) ? 1 : 0; });
  }
};

}  // namespace

std::shared_ptr<Connection> join(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                 std::chrono::milliseconds timeout) {
  StoreOfTorch meeting{std::move(store)};
  tutti_store_t functions = TUTTI_STORE_INIT;
  functions.set = StoreOfTorch::set;
  functions.get = StoreOfTorch::get;
  functions.remove = StoreOfTorch::remove;
  functions.context = &meeting;
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.rank = rank;
  options.ranks = size;
  options.store = &functions;
  options.timeout = std::chrono::duration<double>(timeout).count();
  tutti_comm_t* comm = nullptr;
  check(tutti_init(&comm, &options), "init_process_group");
  return Connection::made(comm, std::make_shared<Driver>());
}

}  // namespace tutti::torch_backend
