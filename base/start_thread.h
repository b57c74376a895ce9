// Starting threads, with an error that says why there is none.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tutti {

// Error(system): the system has no thread for `purpose` ("the control channel").
Error thread_shortage(std::string_view purpose, const std::system_error& error);

// A thread (std::thread, std::jthread) that runs `body`. Throws as above.
template <typename Thread = std::thread, typename Body>
Thread start_thread(std::string_view purpose, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw thread_shortage(purpose, error);
  }
}

}  // namespace tutti
