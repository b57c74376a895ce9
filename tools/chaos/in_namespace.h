// Runs work in a network namespace of `ip netns`.
#pragma once

#include <functional>
#include <string>

namespace tutti::tool::chaos {

// Calls `work` on a new thread in the named namespace ("": the current one). Returns the result of
// `work` (0 or an errno), or the errno with which entering the namespace failed.
int in_namespace(const std::string& name, const std::function<int()>& work);

// Returns the path of the file that represents the namespace to `ip netns`.
std::string namespace_file(const std::string& name);

}  // namespace tutti::tool::chaos
