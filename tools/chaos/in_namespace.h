// Runs work in a network namespace of `ip netns`.
#pragma once

#include <functional>
#include <string>

namespace tutti::tool::chaos {

// Calls `work` on a new thread in that namespace ("": the current one) and returns its result, an
// errno or 0; or the errno of entering the namespace.
int in_namespace(const std::string& name, const std::function<int()>& work);

// Returns the file by which `ip netns` keeps the namespace.
std::string namespace_file(const std::string& name);

}  // namespace tutti::tool::chaos
