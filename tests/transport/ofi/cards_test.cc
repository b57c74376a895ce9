// Tests which of several network cards a rank uses with libfabric.
#include "transport/ofi/cards.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <sched.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/text.h"

namespace tutti::ofi {
namespace {

namespace fs = std::filesystem;

// Results of fi_getinfo(), and files of the system about the cards.
class Cards : public ::testing::Test {
 protected:
  Cards() : sys_(fs::path(::testing::TempDir()) / cat("cards-", ::getpid())) {
    fs::create_directories(sys_);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ::sched_getaffinity(0, sizeof allowed, &allowed);
    while (!CPU_ISSET(static_cast<size_t>(own_cpu_), &allowed)) ++own_cpu_;
  }
  ~Cards() override { fs::remove_all(sys_); }

  struct Card {
    std::string provider;
    std::string name;
    fi_info info = {};
    fi_fabric_attr fabric = {};
    fi_domain_attr domain = {};
    fid_nic nic = {};
    fi_bus_attr bus = {};
    sockaddr_in address = {};
  };

  Card& add(const std::string& provider, const std::string& name) {
    Card& card = cards_.emplace_back();
    card.provider = provider;
    card.name = name;
    card.fabric.prov_name = card.provider.data();
    card.domain.name = card.name.data();
    card.info.fabric_attr = &card.fabric;
    card.info.domain_attr = &card.domain;
    if (cards_.size() > 1) cards_[cards_.size() - 2].info.next = &card.info;
    return card;
  }
  void add_ip(const std::string& name, const std::string& address) {
    Card& card = add("net", name);
    card.address.sin_family = AF_INET;
    ::inet_pton(AF_INET, address.c_str(), &card.address.sin_addr);
    card.info.addr_format = FI_SOCKADDR_IN;
    card.info.src_addr = &card.address;
  }
  // Adds an EFA card in this bus slot, near these processors.
  void add_efa(const std::string& name, uint8_t slot, const std::string& processors) {
    Card& card = add("efa", name);
    card.bus.bus_type = FI_BUS_PCI;
    card.bus.attr.pci = {.domain_id = 1, .bus_id = slot, .device_id = 0x1a, .function_id = 2};
    card.nic.bus_attr = &card.bus;
    card.info.nic = &card.nic;
    char device[32];
    std::snprintf(device, sizeof device, "0001:%02x:1a.2", slot);
    const fs::path folder = sys_ / "bus/pci/devices" / device;
    fs::create_directories(folder);
    std::ofstream(folder / "local_cpulist") << processors << '\n';
  }

  std::string chosen(const Near& near) const {
    const fi_info* const info =
        choose(cards_.empty() ? nullptr : &cards_.front().info, near, "", sys_);
    return info != nullptr ? info->domain_attr->name : "none";
  }
  std::string beside_this_process() const { return cat("4090-4095,", own_cpu_); }

  const fs::path sys_;
  int own_cpu_ = 0;
  std::deque<Card> cards_;
};

constexpr const char* kElsewhere = "4080-4095";

TEST_F(Cards, NoneIsChosenIfThereIsNone) { EXPECT_EQ(chosen({}), "none"); }

TEST_F(Cards, TheCardNearTheRanksProcessorsIsChosen) {
  add_efa("far", 0x10, kElsewhere);
  add_efa("near", 0xa0, beside_this_process());
  for (const int local_rank : {0, 1, 7}) EXPECT_EQ(chosen({.local_rank = local_rank}), "near");
}

TEST_F(Cards, EquallyNearCardsAreUsedInTurn) {
  add_efa("a", 0x10, beside_this_process());
  add_efa("far", 0x20, kElsewhere);
  add_efa("b", 0x30, cat(own_cpu_, "-4095"));
  EXPECT_EQ(chosen({.local_rank = 0}), "a");
  EXPECT_EQ(chosen({.local_rank = 1}), "b");
  EXPECT_EQ(chosen({.local_rank = 2}), "a");
}

TEST_F(Cards, CardsAtUnknownPlacesAreUsedInTurn) {
  add_efa("a", 0x10, "");
  add("efa", "b");
  EXPECT_EQ(chosen({.local_rank = 4}), "a");
  EXPECT_EQ(chosen({.local_rank = 5}), "b");
}

TEST_F(Cards, CardsElsewhereAreUsedLast) {
  add_efa("far", 0x10, kElsewhere);
  add("efa", "somewhere");
  EXPECT_EQ(chosen({.local_rank = 0}), "somewhere");
}

TEST_F(Cards, CardsOfTheSameNameAreOneCard) {
  add_efa("a", 0x10, beside_this_process());
  add_efa("a", 0x10, beside_this_process());
  add_efa("b", 0x20, beside_this_process());
  EXPECT_EQ(chosen({.local_rank = 1}), "b");
}

TEST_F(Cards, TheInterfaceWithTheRouteToTheOthersIsChosen) {
  add_ip("lo", "127.0.0.1");
  add_ip("eth0", "10.0.0.1");
  add_ip("eth1", "10.1.0.1");
  EXPECT_EQ(chosen({.address = "10.1.0.1"}), "eth1");
  EXPECT_EQ(chosen({.address = "127.0.0.1"}), "lo");
  EXPECT_EQ(chosen({.address = "10.2.0.1", .local_rank = 1}), "eth0");
  EXPECT_EQ(chosen({.local_rank = 1}), "eth0") << "all ranks the same: they may be two networks";
}

TEST_F(Cards, LoopbackHasNoRouteToOthers) {
  add_ip("lo", "127.0.0.1");
  EXPECT_EQ(chosen({.address = "10.0.0.1"}), "none");
  EXPECT_EQ(chosen({}), "lo");
}

}  // namespace
}  // namespace tutti::ofi
