// Tests that truncated, altered or missing files are refused with their names, and with the name of
// a complete checkpoint as an alternative.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/checkpoint/support.h"
#include "training/checkpoint/checksum.h"
#include "training/checkpoint/lineage.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/shared_verification.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two ranks write two complete checkpoints. The tests damage files of the second one.
class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    save_sample_well(scratch_.path("run"), 2, 1);
    save_sample_well(scratch_.path("run"), 2, 2);
  }

  std::string run() const { return scratch_.path("run"); }
  std::string file(const char* name) const { return scratch_.path("run/step-00000002/") + name; }

  // Reads all tensors of the run's checkpoint, as a resumed training does. Returns the error.
  std::string resume_error() const {
    return error_of([&] {
      const Checkpoint checkpoint = Checkpoint::open(run());
      for (const std::string& name : checkpoint.names()) {
        std::vector<float> values(static_cast<size_t>(checkpoint.find(name)->count()));
        checkpoint.read(
            name, 0, tensor_at(values.data(), DType::f32, 1, static_cast<int64_t>(values.size())));
      }
    });
  }

  void expect_refused(const char* name) const {
    EXPECT_THAT(
        resume_error(),
        AllOf(HasSubstr(name), HasSubstr(cat("use ", run(), "/step-00000001, which is complete"))));
  }

  Scratch scratch_;
};

constexpr const char* kFiles[] = {"checkpoint.json", "rank-0000-of-0002.safetensors",
                                  "rank-0001-of-0002.safetensors"};

TEST_F(Damage, AFileThatIsCutOffAnywhereIsRefused) {
  for (const char* name : kFiles) {
    const std::string whole = read_bytes(file(name));
    for (size_t i = 0; i < 40; ++i) {
      const size_t left = i < 20 ? i : whole.size() - 1 - (whole.size() - 20) * (i - 20) / 20;
      SCOPED_TRACE(cat(name, " cut to ", left, " of ", whole.size(), " bytes"));
      write_bytes(file(name), whole.substr(0, left));
      expect_refused(name);
    }
    write_bytes(file(name), whole + ' ');
    expect_refused(name);
    write_bytes(file(name), whole);
  }
  EXPECT_EQ(resume_error(), "");
}

TEST_F(Damage, ASingleAlteredBitIsRefused) {
  for (const char* name : kFiles) {
    const std::string whole = read_bytes(file(name));
    const size_t stride = whole.size() / 60;
    for (size_t at = 0; at < whole.size(); at += at < 30 ? 1 : stride) {
      SCOPED_TRACE(cat(name, ", byte ", at));
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ (1 << at % 8));
      write_bytes(file(name), altered);
      expect_refused(name);
    }
    write_bytes(file(name), whole);
  }
  EXPECT_EQ(resume_error(), "");
}

TEST_F(Damage, AMissingFileIsRefused) {
  for (const char* name : kFiles) {
    const std::string whole = read_bytes(file(name));
    fs::remove(file(name));
    expect_refused(name);
    write_bytes(file(name), whole);
  }
  fs::remove_all(file(""));
  expect_refused("step-00000002");
}

// Replaces a rank's file by the other rank's complete file.
TEST_F(Damage, ExchangedFilesAreRefused) {
  fs::rename(file(kFiles[1]), file("other"));
  fs::copy_file(file(kFiles[2]), file(kFiles[1]));
  expect_refused(kFiles[1]);
}

TEST_F(Damage, NoCheckpointIsPromisedIfNoneIsWhole) {
  for (const char* step : {"step-00000001/", "step-00000002/"}) {
    fs::resize_file(run() + '/' + step + kFiles[2], 100);
  }
  EXPECT_THAT(resume_error(), HasSubstr("no other checkpoint here is complete"));
  EXPECT_THAT(error_of([&] { choose_step(run(), std::nullopt); }),
              AllOf(HasSubstr(cat("no checkpoint in ", run(), " is complete; step 2: ")),
                    HasSubstr("; step 1: ")));
}

TEST_F(Damage, ARunResumesFromTheNewestWholeStep) {
  expect_sample(choose_step(run(), std::nullopt).checkpoint, 2);
  fs::resize_file(file(kFiles[2]), 100);
  const ChosenStep chosen = choose_step(run(), std::nullopt);
  expect_sample(chosen.checkpoint, 1);
  ASSERT_EQ(chosen.skipped.size(), 1u);
  EXPECT_EQ(chosen.skipped[0].step, 2);
  EXPECT_THAT(chosen.skipped[0].why, HasSubstr(kFiles[2]));
}

TEST_F(Damage, LatestMustNameAStep) {
  for (const char* text : {"", "step-2", "../run/step-00000001", "step-00000002\nmore"}) {
    write_bytes(scratch_.path("run/latest"), text);
    EXPECT_THAT(resume_error(), HasSubstr("run/latest does not name a checkpoint")) << text;
  }
  fs::remove(scratch_.path("run/latest"));
  expect_sample(Checkpoint::open(run()), 2);
}

// A resuming rank reads only the pieces that it needs, so that damage to other pieces does not
// matter.
TEST_F(Damage, WholePiecesOfADamagedFileAreRead) {
  const Checkpoint whole = Checkpoint::open(run());
  const TensorEntry& last = whole.manifest().tensors.back();
  const StoredPiece piece = last.slices[0].pieces.back();
  const std::string name =
      piece_name(last.info.name, last.slices[0].slice, piece.first, piece.count);
  const std::string path = cat(whole.path(), '/', whole.manifest().file_name(piece.file));
  const SafetensorsFile stored(path);
  const auto at = static_cast<size_t>(stored.find(name)->bytes.data() - stored.bytes().data());
  std::string altered = read_bytes(path);
  altered[at] = static_cast<char>(altered[at] ^ 1);
  write_bytes(path, altered);
  const Checkpoint checkpoint = Checkpoint::open(run());
  for (const TensorEntry& tensor : checkpoint.manifest().tensors) {
    if (tensor.info.count() == 0) continue;
    std::vector<float> values(static_cast<size_t>(tensor.info.count()));
    const Tensor out = tensor_at(values.data(), DType::f32, 1, static_cast<int64_t>(values.size()));
    const std::string error = error_of([&] { checkpoint.read(tensor.info.name, 0, out); });
    if (tensor.info.name == last.info.name) {
      EXPECT_THAT(error, AllOf(HasSubstr(path), HasSubstr("is damaged")));
      EXPECT_NO_THROW(Checkpoint::open_verified(whole.path()).read(tensor.info.name, 0, out))
          << "checksums were compared a second time";
    } else {
      EXPECT_EQ(error, "") << tensor.info.name;
    }
  }
}

TEST_F(Damage, CheckpointsWithoutPieceChecksumsAreVerifiedByFile) {
  Manifest manifest = Checkpoint::open(run()).manifest();
  for (FileEntry& entry : manifest.files) entry.header_checksum.clear();
  for (TensorEntry& tensor : manifest.tensors) {
    for (StoredSlice& slice : tensor.slices) {
      for (StoredPiece& piece : slice.pieces) piece.checksum.clear();
    }
  }
  write_bytes(file(kFiles[0]), to_text(manifest));
  expect_sample(Checkpoint::open(run()), 2);
  std::string altered = read_bytes(file(kFiles[2]));
  altered.back() = static_cast<char>(altered.back() ^ 1);
  write_bytes(file(kFiles[2]), altered);
  expect_refused(kFiles[2]);
}

TEST_F(Damage, RanksVerifyAStepTogether) {
  for (const int ranks : {1, 2, 3}) {
    for (const char* damaged : {"", kFiles[1], kFiles[2]}) {
      const std::string whole = *damaged == 0 ? "" : read_bytes(file(damaged));
      if (*damaged != 0) {
        std::string altered = whole;
        altered.back() = static_cast<char>(altered.back() ^ 1);
        write_bytes(file(damaged), altered);
      }
      int64_t chosen = 0;
      const std::vector<std::string> errors = run_ranks(ranks, [&](const Group& group) {
        SharedVerification verification(group);
        if (group.rank != 0) return verification.serve();
        chosen = choose_step(run(), std::nullopt,
                             [&](const Checkpoint& step) { verification.verify(step); })
                     .checkpoint.manifest()
                     .step;
        verification.finish();
      });
      EXPECT_THAT(errors, ::testing::Each(""));
      EXPECT_EQ(chosen, *damaged == 0 ? 2 : 1) << ranks << " ranks, damaged: " << damaged;
      if (*damaged != 0) write_bytes(file(damaged), whole);
    }
  }
}

TEST_F(Damage, VerifyReadsAllFiles) {
  Checkpoint::open(run()).verify();
  std::string altered = read_bytes(file(kFiles[2]));
  altered.back() = static_cast<char>(altered.back() ^ 1);
  write_bytes(file(kFiles[2]), altered);
  const Checkpoint checkpoint = Checkpoint::open(run());  // does not read the data files
  EXPECT_THAT(error_of([&] { checkpoint.verify(); }), HasSubstr(kFiles[2]));
}

// --- manifests that have a correct checksum, but are malicious or of a later version ---

std::string with_checksum(const std::string& rest) {
  return cat("{\"xxh3_64\": \"", checksum_of(std::as_bytes(std::span(rest))), "\",\n", rest);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Manifest, InconsistentManifestsAreRefused) {
  Manifest manifest{.step = 3,
                    .model = "m",
                    .state = Json::object(),
                    .files = {{64, "0000000000000000"}},
                    .tensors = {{{"model.x", DType::f32, {16}}, {{Slice({16}), {{0, 16, 0}}}}}}};
  const std::string text = to_text(manifest);
  EXPECT_EQ(parse_manifest(text, "f").tensors, manifest.tensors);
  const std::string rest =
      Json::parse(text.substr(0, 1) + text.substr(text.find('\n'))).dump().substr(1);
  EXPECT_EQ(parse_manifest(with_checksum(rest), "f").files, manifest.files);

  struct Case {
    const char* from;
    const char* to;
    const char* cause;
  };
  for (const Case& one : std::vector<Case>{
           {"\"shape\":[16]", "\"shape\":[17]", "lacks elements [16, 17)"},
           {"\"shape\":[16]", "\"shape\":[15]", "beyond its 15 elements"},
           {"\"shape\":[16]", "\"shape\":[-16]", "invalid shape"},
           {"\"shape\":[16]", "\"shape\":[4611686018427387904,4]", "invalid shape"},
           {"\"shape\":[16]", "\"shape\":16", "expected an array, found 16"},
           {"[[0,16,0]]", "[[0,16,1]]", "invalid piece"},
           {"[[0,16,0]]", "[[0,16,-1]]", "invalid piece"},
           {"[[0,16,0]]", "[[0,0,0],[0,16,0]]", "invalid piece"},
           {"[[0,16,0]]", "[[0,9,0],[8,8,0]]", "element 8 twice"},
           {"[[0,16,0]]", "[[-8,24,0]]", "twice"},
           {"[[0,16,0]]", "[[0,16]]", "expected an array of at least 3 values"},
           {"[[0,16,0]]", "[[0,9223372036854775807,0],[1,15,0]]", "beyond its 16 elements"},
           {"\"F32\"", "\"F31\"", "unknown type"},
           {"\"tutti-checkpoint\"", "\"other\"", "unknown format"},
           {"\"version\":1", "\"version\":3", "version 3"},
           {"\"version\":1", "\"version\":0", "version 0"},
           {"\"step\":3", "\"step\":3,\"step\":4", "twice"},
           {"\"step\":3", "\"step\":\"3\"", "expected a whole number"},
           {"\"step\":3", "\"stop\":3", "step"},
           {"\"files\":[{", "\"files\":[3,{", "expected an object"},
           {"}", "", "parse"},
       }) {
    EXPECT_THAT(error_of([&] {
                  parse_manifest(with_checksum(replaced(rest, one.from, one.to)), "the/file");
                }),
                AllOf(HasSubstr("the/file"), HasSubstr(one.cause)))
        << one.to;
  }
  EXPECT_THAT(
      error_of([&] { parse_manifest(with_checksum(std::string(100000, '[')), "the/file"); }),
      HasSubstr("the/file"));
}

// The format as it was before slices were introduced.
TEST(Manifest, VersionOneIsRead) {
  const Manifest manifest = parse_manifest(
      with_checksum(R"("format":"tutti-checkpoint","version":1,"step":3,"model":"m","state":{},
        "files":[{"bytes":64,"xxh3_64":"0"},{"bytes":64,"xxh3_64":"0"}],
        "tensors":{"model.x":{"dtype":"F32","shape":[2,8],"pieces":[[0,9,0],[9,7,1]]},
                   "model.y":{"dtype":"F32","shape":[0],"pieces":[]}}})"),
      "f");
  ASSERT_EQ(manifest.tensors.size(), 2);
  EXPECT_EQ(manifest.tensors[0].slices,
            (std::vector<StoredSlice>{{Slice({2, 8}), {{0, 9, 0}, {9, 7, 1}}}}));
  EXPECT_EQ(manifest.tensors[1].slices, std::vector<StoredSlice>{});
  // Version 1 is also written if no tensor is cut, so that older programs can read the file.
  EXPECT_NE(to_text(manifest).find("\"version\": 1"), std::string::npos);
}

TEST(Manifest, HoldsSlices) {
  const Slice left({2, 8}, {{{0, 2}}, {{0, 2}, {6, 8}}});
  const Slice right({2, 8}, {{{0, 2}}, {{2, 6}}});
  Manifest manifest{.step = 3,
                    .model = "m",
                    .state = Json::object(),
                    .files = {{64, "0"}, {64, "0"}, {64, "0"}},
                    .tensors = {{{"model.x", DType::f32, {2, 8}},
                                 {{left, {{0, 5, 0}, {5, 3, 1}}}, {right, {{0, 8, 2}}}}}}};
  const std::string text = to_text(manifest);
  EXPECT_NE(text.find("\"version\": 2"), std::string::npos);
  EXPECT_EQ(parse_manifest(text, "f").tensors, manifest.tensors);
  EXPECT_EQ(manifest.tensors[0].pieces(), 3);
  const std::string rest =
      Json::parse(text.substr(0, 1) + text.substr(text.find('\n'))).dump().substr(1);
  struct Case {
    const char* from;
    const char* to;
    const char* cause;
  };
  for (const Case& one : std::vector<Case>{
           {"[[2,6]]", "[[2,5]]", "beyond its 6 elements of its slice 0:2, 2:5"},
           {"[[2,6]]", "[[1,5]]", "elements both in 0:2, 0:2+6:8 and in 0:2, 1:5"},
           {"[[2,6]]", "[[2,9]]", "not a slice"},
           {"[[2,6]]", "[[2,3],[3,6]]", "not a slice"},
           {"[[2,6]]", "[[2,3],[4,5]]", "beyond its 4 elements"},
           {"[0,8,2]", "[0,6,2]", "lacks elements [6, 8) of its slice 0:2, 2:6"},
           {"[0,5,0]", "[0,6,0]", "has element 5 twice of its slice"},
           {",{\"ranges\":[[[0,2]],[[2,6]]],\"pieces\":[[0,8,2]]}", "", "lacks 8 elements"},
           {"\"version\":2", "\"version\":3", "version 3"},
       }) {
    EXPECT_THAT(error_of([&] {
                  parse_manifest(with_checksum(replaced(rest, one.from, one.to)), "the/file");
                }),
                AllOf(HasSubstr("the/file"), HasSubstr(one.cause)))
        << one.to;
  }
}

}  // namespace
}  // namespace tutti::training
