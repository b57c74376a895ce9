// Work in a network namespace of `ip netns`.
#pragma once

#include <functional>
#include <string>

namespace tutti::tool::chaos {

// Calls `work`, which returns an errno or 0, on a thread of its own in that namespace ("": this
// one), and returns that. Or why the namespace cannot be entered.
int in_namespace(const std::string& name, const std::function<int()>& work);

// The file by which `ip netns` keeps it.
std::string namespace_file(const std::string& name);

}  // namespace tutti::tool::chaos
