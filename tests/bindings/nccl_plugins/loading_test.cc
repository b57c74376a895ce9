// Tests the symbols that NCCL looks up in a plugin, and the plugins' defaults.
#include <gtest/gtest.h>

#include <string>

#include "bindings/nccl_plugins/interfaces.h"
#include "bindings/nccl_plugins/profiler_abi.h"
#include "bindings/nccl_plugins/tuner_abi.h"
#include "tests/bindings/nccl_plugins/net_host.h"
#include "tests/bindings/nccl_plugins/plugin_host.h"

namespace tutti::testing {
namespace {

// NCCL_NET_PLUGIN=tutti loads libnccl-net-tutti.so; the variables of the tuner and profiler plugins
// load libraries of similar names. libnccl-tutti.so works for all plugins.
TEST(Loading, EveryNameHasAllPlugins) {
  for (const char* const name : {"libnccl-tutti.so", "libnccl-net-tutti.so",
                                 "libnccl-tuner-tutti.so", "libnccl-profiler-tutti.so"}) {
    const Library library(name);
    ASSERT_TRUE(library.is_open()) << ::dlerror();
    for (const std::string symbol :
         {"ncclNetPlugin_v8", "ncclNetPlugin_v9", "ncclNetPlugin_v10", "ncclNetPlugin_v11",
          "ncclNetPlugin_v12", "ncclTunerPlugin_v3", "ncclTunerPlugin_v4", "ncclTunerPlugin_v5",
          "ncclTunerPlugin_v6", "ncclProfiler_v3", "ncclProfiler_v4", "ncclProfiler_v5",
          "ncclProfiler_v6"}) {
      // Every plugin struct begins with its name.
      const auto* const plugin = library.find<const char*>(symbol);
      ASSERT_NE(plugin, nullptr) << symbol;
      EXPECT_STREQ(*plugin, "Tutti") << symbol;
    }
    EXPECT_EQ(library.find<void>("ncclCollNetPlugin_v11"), nullptr);
    EXPECT_EQ(library.find<void>("_ZN5tutti8settingsEv"), nullptr);  // no other symbol is exported
  }
}

TEST(Loading, RecordsNothingByDefault) {
  const Library library;
  const auto* const plugin = library.find<ncclProfiler_v5_t>("ncclProfiler_v6");
  void* context = &context;
  int mask = -1;
  ASSERT_EQ(plugin->init(&context, 1, &mask, "mine", 1, 2, 0, log_of_host), ncclSuccess);
  EXPECT_EQ(mask, 0);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(plugin->finalize(context), ncclSuccess);
}

TEST(Loading, FindsNetworks) {
  const auto interfaces = nccl::find_interfaces();
  ASSERT_FALSE(interfaces.empty());
  for (const nccl::Interface& interface : interfaces) {
    EXPECT_FALSE(interface.name.empty());
    EXPECT_GT(interface.mbits, 0);
  }
  const Library library;
  const auto net = make_net(library, 12);
  ASSERT_EQ(net->init(), ncclSuccess);
  int count = 0;
  ASSERT_EQ(net->devices(&count), ncclSuccess);
  EXPECT_EQ(static_cast<size_t>(count), interfaces.size());
  DeviceProperties told;
  ASSERT_EQ(net->properties(0, &told), ncclSuccess);
  EXPECT_EQ(told.name, interfaces[0].name);
}

}  // namespace
}  // namespace tutti::testing
