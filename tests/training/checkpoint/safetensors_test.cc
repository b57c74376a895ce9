// Tests that files of other programs are read, and that invalid files are refused.
#include "training/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/checkpoint/support.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Returns a file that consists of this header and `data` bytes.
std::string file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + std::string(data, 'x');
}

class Safetensors : public ::testing::Test {
 protected:
  std::string path() const { return scratch_.path("model.safetensors"); }
  std::string error(const std::string& bytes) const {
    write_bytes(path(), bytes);
    return error_of([&] { SafetensorsFile file(path()); });
  }
  std::string header_error(const std::string& header, size_t data) const {
    return error(file_of(header, data));
  }

 private:
  Scratch scratch_;
};

TEST_F(Safetensors, WhatIsWrittenIsRead) {
  const std::vector<TensorInfo> tensors = {{"a/ü \"quoted\"\n", DType::f32, {2, 3}},
                                           {"scalar", DType::f64, {}},
                                           {"none", DType::bf16, {0, 7}},
                                           {"bytes", DType::u8, {3}},
                                           {"i64", DType::i64, {1}},
                                           {"f16", DType::f16, {2}},
                                           {"f8", DType::f8e4m3, {1, 1, 1}},
                                           {"last", DType::u16, {1}}};
  std::vector<std::byte> data(24 + 8 + 0 + 3 + 8 + 4 + 1 + 2);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37);
  SafetensorsWriter writer(path(), tensors, {{"key", "value"}, {"format", "pt"}});
  writer.write(std::span(data).first(11));
  writer.write(std::span(data).subspan(11));
  writer.finish();

  const SafetensorsFile file(path());
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"key", "value"}}));
  ASSERT_THAT(file.tensors(), SizeIs(tensors.size()));
  size_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const StoredTensor* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->info, tensor);
    EXPECT_EQ(found->bytes.size(), static_cast<size_t>(tensor.count()) * size_of(tensor.dtype));
    EXPECT_TRUE(found->bytes.empty() ||
                0 == std::memcmp(found->bytes.data(), data.data() + offset, found->bytes.size()));
    offset += found->bytes.size();
  }
  EXPECT_EQ(offset, data.size());
  EXPECT_EQ(file.find("a"), nullptr);

  const std::string bytes = read_bytes(path());
  EXPECT_EQ(bytes.size(), writer.size());
  EXPECT_EQ((bytes.size() - data.size()) % 8, 0u) << "the data is not aligned";
}

TEST_F(Safetensors, AWriterThatIsGivenTooLittleLeavesNoFile) {
  {
    SafetensorsWriter writer(path(), {{"x", DType::f32, {4}}});
    writer.write(std::vector<std::byte>(12));
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(Safetensors, AWriterRefusesWhatTheFormatCannotHold) {
  const auto write = [&](const std::vector<TensorInfo>& tensors) {
    return error_of([&] { SafetensorsWriter writer(path(), tensors); });
  };
  EXPECT_THAT(write({{"x", DType::f32, {1}}, {"x", DType::f32, {1}}}), HasSubstr("that name"));
  EXPECT_THAT(write({{"__metadata__", DType::f32, {1}}}), HasSubstr("that name"));
  EXPECT_THAT(write({{"x", DType::f32, {-1}}}), HasSubstr("invalid"));
  EXPECT_THAT(write({{"x", DType::f32_i32, {1}}}), HasSubstr("no type name for"));
  EXPECT_THAT(write({{"\xff", DType::f32, {1}}}), HasSubstr("UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(Safetensors, FilesAsOthersWriteThemAreRead) {
  EXPECT_EQ(header_error("{}", 0), "");
  EXPECT_EQ(header_error("{}        ", 0), "");
  EXPECT_EQ(header_error(R"({"__metadata__":{}})", 0), "");
  EXPECT_EQ(header_error(R"({"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2), "");
  // The header does not list the tensors in the order of their bytes. One tensor is at an odd
  // address, and an empty one is between the others.
  EXPECT_EQ(header_error(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]},
                             "n":{"data_offsets":[3,3],"shape":[3,0],"dtype":"I64"},
                             "a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})",
                         7),
            "");
  const SafetensorsFile file(path());
  ASSERT_THAT(file.tensors(), SizeIs(3));
  EXPECT_EQ(file.tensors()[0].info.name, "a");
  EXPECT_EQ(file.tensors()[1].info.name, "n");
  EXPECT_EQ(file.tensors()[2].info.name, "b");
}

// A header with an error. Except for the error, tensor x has type F32, shape [2] and bytes 0 to 8
// of 8.
struct Hostile {
  std::string header;
  size_t data;
  const char* cause;
};

TEST_F(Safetensors, HostileHeadersAreRefusedByName) {
  const std::string x = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto with = [](const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
    return cat(R"({"x":{"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets,
               "}}");
  };
  const std::string f32 = "\"F32\"";
  const std::vector<Hostile> cases = {
      {"", 0, "does not start with {"},
      {"[]", 0, "does not start with {"},
      {" {}", 0, "does not start with {"},
      {"{", 0, "parse error"},
      {"{} {}", 0, "parse error"},
      {"{\"\xff\":{}}", 0, "UTF-8"},
      {"{" + x + "," + x + "}", 8, "twice"},
      {R"({"x":{"dtype":"F32","dtype":"I8","shape":[2],"data_offsets":[0,8]}})", 8, "twice"},
      {R"({"x":3})", 0, "not an object"},
      {R"({"x":[]})", 0, "not an object"},
      {R"({"x":{}})", 0, "no dtype"},
      {R"({"x":{"dtype":"F32","shape":[2]}})", 8, "no data_offsets"},
      {R"({"x":{"dtype":"F32","data_offsets":[0,8]}})", 8, "no shape"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8, "unknown field"},
      {with("7", "[2]", "[0,8]"), 8, "no dtype"},
      {with("\"F31\"", "[2]", "[0,8]"), 8, "\"F31\" is unknown"},
      {with(f32, "2", "[0,8]"), 8, "no shape"},
      {with(f32, "[2.0]", "[0,8]"), 8, "not a size"},
      {with(f32, "[-2]", "[0,8]"), 8, "not a size"},
      {with(f32, "[\"2\"]", "[0,8]"), 8, "not a size"},
      {with(f32, "[null]", "[0,8]"), 8, "not a size"},
      {with(f32, "[[2]]", "[0,8]"), 8, "not a size"},
      {with(f32, "[3]", "[0,8]"), 8, "require 12"},
      {with(f32, "[18446744073709551615]", "[0,8]"), 8, "not a size"},
      {with(f32, "[99999999999999999999999]", "[0,8]"), 8, "not a size"},
      {with(f32, "[4611686018427387904]", "[0,8]"), 8, "exceeds the address space"},
      {with(f32, "[4294967296,4294967296]", "[0,0]"), 0, "exceeds the address space"},
      {with(f32, "[2147483648,2147483648,4]", "[0,0]"), 0, "exceeds the address space"},
      {with(f32, "[2]", "[0,9]"), 8, "only 8"},
      {with(f32, "[2]", "[0,8]"), 7, "only 7"},
      {with(f32, "[2]", "[8,0]"), 8, "not a range"},
      {with(f32, "[2]", "[0]"), 8, "not a range"},
      {with(f32, "[2]", "[0,8,16]"), 16, "not a range"},
      {with(f32, "[2]", "[-8,0]"), 8, "not a size"},
      {with(f32, "[2]", "[18446744073709551608,0]"), 8, "not a size"},
      {with(f32, "[2]", "[0,18446744073709551615]"), 8, "not a size"},
      {with(f32, "[2]", "[1,9]"), 9, "1 bytes before it belong to no tensor"},
      {with(f32, "[2]", "[0,8]"), 9, "1 bytes at its end belong to no tensor"},
      {"{" + x + R"(,"y":{"dtype":"I8","shape":[8],"data_offsets":[0,8]}})", 8, "overlaps"},
      {"{" + x + R"(,"y":{"dtype":"I8","shape":[8],"data_offsets":[7,15]}})", 15, "overlaps"},
      {"{" + x + R"(,"y":{"dtype":"I8","shape":[0],"data_offsets":[4,4]}})", 8, "overlaps"},
      {"{" + x + R"(,"__metadata__":{"a":1}})", 8, "not a string"},
      {"{" + x + R"(,"__metadata__":"a"})", 8, "not an object"},
      {"{\"a\":" + std::string(100000, '['), 0, "brackets"},
      {R"({"__metadata__":{"a":{"b":{"c":1}}}})", 0, "not a string"},
  };
  for (const Hostile& one : cases) {
    EXPECT_THAT(header_error(one.header, one.data),
                AllOf(HasSubstr(path()), HasSubstr("is not a valid safetensors file"),
                      HasSubstr(one.cause), HasSubstr("remedy: ")))
        << one.header.substr(0, 200);
  }
  EXPECT_THAT(header_error(with(f32, "[3]", "[0,8]"), 8), HasSubstr("tensor \"x\""));
}

TEST_F(Safetensors, HostileLengthsAreRefused) {
  const std::string good = file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  ASSERT_EQ(error(good), "");
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{good.size() - 7}, uint64_t{1} << 32,
        uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string bad = good;
    std::memcpy(bad.data(), &length, sizeof length);
    EXPECT_THAT(error(bad), HasSubstr(path())) << length;
  }
  EXPECT_THAT(error_of([&] { SafetensorsFile file(::testing::TempDir()); }),
              HasSubstr("not a file"));
  EXPECT_THAT(error_of([&] { SafetensorsFile file(path() + ".no"); }),
              HasSubstr("No such file or directory"));
}

TEST_F(Safetensors, ControlCharactersOfStrangersAreNotPrinted) {
  const std::string said = header_error("{\"\\u001b[2Jname" + std::string(5000, 'n') + "\":7}", 0);
  EXPECT_EQ(said.find('\x1b'), said.npos);
  EXPECT_THAT(said, HasSubstr("\\x1b[2Jname"));
  EXPECT_LT(said.size(), 1000u);
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  const std::string good = file_of(
      R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"I8","shape":[3],"data_offsets":[8,11]}})",
      11);
  ASSERT_EQ(error(good), "");
  for (size_t left = 0; left < good.size(); ++left) {
    ASSERT_NE(error(good.substr(0, left)), "") << left;
  }
}

// An altered header is refused, or its tensors are within the file and fit their shapes.
TEST_F(Safetensors, AlteredHeadersAreRefusedOrSound) {
  const std::string good = file_of(
      R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"I8","shape":[3],"data_offsets":[8,11]}})",
      11);
  const std::string letters = "{}[]\",:0123456789-.eF\\";
  int sound = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    std::string bad = good;
    const uint64_t changes = 1 + random_bits(1, i, 0) % 3;
    for (uint64_t change = 0; change < changes; ++change) {
      const uint64_t bits = random_bits(2 + change, i, 0);
      bad[bits % (bad.size() - 11)] = letters[(bits >> 32) % letters.size()];
    }
    write_bytes(path(), bad);
    const std::string said = error_of([&] {
      const SafetensorsFile file(path());
      size_t bytes = 0;
      for (const StoredTensor& tensor : file.tensors()) {
        ASSERT_EQ(tensor.bytes.size(),
                  static_cast<size_t>(tensor.info.count()) * size_of(tensor.info.dtype));
        bytes += tensor.bytes.size();
        // Accesses them, so that the address sanitizer detects out-of-bounds tensors.
        ASSERT_EQ(std::accumulate(tensor.bytes.begin(), tensor.bytes.end(), 0,
                                  [](int sum, std::byte one) { return sum + int(one); }),
                  'x' * static_cast<int>(tensor.bytes.size()));
      }
      ASSERT_EQ(bytes, 11u);
      ++sound;
    });
    if (!said.empty()) {
      ASSERT_THAT(said, HasSubstr(path()));
    }
  }
  EXPECT_GT(sound, 10);  // for example, if a name was changed
  EXPECT_LT(sound, 3000);
}

}  // namespace
}  // namespace tutti::training
