// Starts threads, with an error that explains a failure.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tutti {

// Builds Error(system): the system cannot create a thread for `purpose` ("the control channel").
Error thread_shortage(std::string_view purpose, const std::system_error& error);

// Starts a thread (std::thread, std::jthread) that runs `body`. Throws thread_shortage() if the
// system cannot create it.
template <typename Thread = std::thread, typename Body>
Thread start_thread(std::string_view purpose, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw thread_shortage(purpose, error);
  }
}

}  // namespace tutti
