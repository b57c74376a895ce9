// Tests bench/measure.h and digest.h: the number of wrong elements, and the digest of outputs.
// Ranks are threads.
#include "bench/measure.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "bench/digest.h"
#include "tests/support/ranks.h"

namespace tutti::bench {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Sha256, MatchesTheStandard) {
  // These are examples of FIPS 180-4.
  EXPECT_EQ(hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

// Runs three ranks with these outputs. Returns the digest.
Digest digest_of(Collective collective, std::vector<std::string> outputs) {
  const Layout layout{.collective = collective, .ranks = 3, .root = 1, .count = 1, .uneven = {}};
  Digest result;
  testing::run_ranks(3, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    const Digest found = digest(comm, layout, bytes_of(outputs[comm.rank()]));
    if (comm.rank() == 2) result = found;
  });
  return result;
}

TEST(Digest, AllReduceHasRankZerosDigestAndNamesRanksThatDiffer) {
  EXPECT_EQ(digest_of(Collective::all_reduce, {"a", "a", "a"}).hash, sha256(bytes_of("a")));
  EXPECT_TRUE(digest_of(Collective::all_reduce, {"a", "a", "a"}).other_ranks.empty());
  EXPECT_EQ(digest_of(Collective::all_reduce, {"a", "b", "a"}).other_ranks, std::vector{1});
  EXPECT_EQ(digest_of(Collective::all_reduce, {"a", "b", "c"}).other_ranks, (std::vector{1, 2}));
}

TEST(Digest, ReduceHasTheRootsDigest) {
  EXPECT_EQ(digest_of(Collective::reduce, {"", "b", ""}).hash, sha256(bytes_of("b")));
}

TEST(Digest, DifferentResultsAreDigestedInRankOrder) {
  std::string all;
  for (const char* text : {"a", "b", "c"}) {
    for (const uint8_t byte : sha256(bytes_of(text))) all += static_cast<char>(byte);
  }
  const Digest found = digest_of(Collective::all_to_all, {"a", "b", "c"});
  EXPECT_EQ(found.hash, sha256(bytes_of(all)));
  EXPECT_TRUE(found.other_ranks.empty());
  EXPECT_NE(digest_of(Collective::all_to_all, {"b", "a", "c"}).hash, found.hash);
}

TEST(Measurement, CountsWrongElementsAndClearsThem) {
  testing::run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Case c;
    c.bytes = 4000;
    Measurement measurement(comm, c);
    EXPECT_EQ(measurement.run(1, 2).size(), 2u);
    EXPECT_EQ(measurement.count_wrong(), 0);
    EXPECT_EQ(measurement.count_wrong(), 3 * 1000u) << "no call since: nothing is there";
  });
}

TEST(Measurement, ADeterministicResultMustBeCanonical) {
  testing::run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Case c;
    c.bytes = 40000;
    c.data = Data::rounding;
    c.deterministic = true;
    Measurement measurement(comm, c);
    measurement.run(0, 1);
    const Sha256 canonical = measurement.digest().hash;
    EXPECT_EQ(measurement.count_wrong(), 0);

    c.deterministic = false;
    c.algorithm = "ring";
    Measurement other(comm, c);
    other.run(0, 1);
    EXPECT_NE(other.digest().hash, canonical);
    EXPECT_EQ(other.count_wrong(), 0) << "within the bound";
  });
}

}  // namespace
}  // namespace tutti::bench
