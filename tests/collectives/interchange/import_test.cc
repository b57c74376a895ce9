// Tests that files are imported as algorithms of the catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/settings.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/interchange/resolve.h"
#include "collectives/proof/verify.h"
#include "tests/collectives/interchange/xml.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Returns the file of an all-reduce by two GPUs in `chunks` chunks.
std::string all_reduce(int chunks) {
  Xml xml("allreduce", 2, chunks);
  xml.gpu(chunks, 0, 0).tb(1, 1).step("s", "i0", "i0", chunks).step("r", "i0", "i0", chunks);
  xml.gpu(chunks, 0, 0).tb(0, 0).step("rrcs", "i0", "i0", chunks);
  return xml.text();
}

std::string write(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(MscclImport, MakesAnAlgorithmOfTheCatalogue) {
  const Algorithm& algorithm = import_algorithm(write("exchange.xml", all_reduce(1)));
  EXPECT_EQ(algorithm.name, "exchange");
  EXPECT_EQ(algorithm.collective, Collective::all_reduce);
  EXPECT_EQ(algorithm.grade, Grade::same_bits);
  EXPECT_EQ(algorithm.id, id_of(all_reduce(1)));
  EXPECT_THAT(algorithm.source, HasSubstr("exchange.xml"));
  EXPECT_EQ(find_algorithm(Collective::all_reduce, "exchange"), &algorithm);
  EXPECT_EQ(find_algorithm(algorithm.id), &algorithm);
  EXPECT_EQ(verify(algorithm, {.ranks = 2}).grade, Grade::same_bits);
  EXPECT_EQ(algorithm.supports({.ranks = 2}), "");
  EXPECT_EQ(algorithm.supports({.ranks = 3}), "it is for 2 ranks");
}

// If results pass through scratch, each rank divides its own result instead.
TEST(MscclImport, MeansAreSharedIfTheSharingIsProved) {
  Xml through_scratch("allreduce", 2, 1);
  through_scratch.gpu(1, 0, 0).tb(1, 1).step("s", "i0", "s0").step("r", "s0", "i0");
  through_scratch.gpu(1, 0, 1)
      .tb(0, 0)
      .step("rrc", "i0", "s0")
      .step("s", "s0", "i0")
      .step("cpy", "s0", "i0");
  const Algorithm& own = import_algorithm(write("through_scratch.xml", through_scratch.text()));
  EXPECT_EQ(own.means, Means::own);
  const Algorithm& shared = import_algorithm(write("exchange.xml", all_reduce(1)));
  EXPECT_EQ(shared.means, Means::shared);
  for (const Algorithm* algorithm : {&own, &shared}) {
    for (const Arithmetic arithmetic : {Arithmetic::none, Arithmetic::means, Arithmetic::scaled}) {
      EXPECT_EQ(verify(*algorithm, {.ranks = 2}, arithmetic).problem, "") << algorithm->name;
    }
  }
}

TEST(MscclImport, ReadsAFileAgainOnlyWhenItHasChanged) {
  const std::string path = write("changing.xml", all_reduce(2));
  const Algorithm& first = import_algorithm(path);
  EXPECT_EQ(&import_algorithm(path), &first);
  EXPECT_EQ(&import_algorithm(write("copied.xml", all_reduce(2))), &first) << "the same contents";
  write("changing.xml", all_reduce(3));
  const Algorithm& second = import_algorithm(path);
  EXPECT_NE(&second, &first);
  EXPECT_NE(second.id, first.id);
  EXPECT_EQ(second.emit({.ranks = 2}).input_chunks, 3);
}

TEST(MscclImport, RootedFilesAreForTheirRoot) {
  Xml xml("broadcast", 2, 1, "inplace=\"1\" root=\"1\"");
  xml.gpu(1, 0, 0).tb(-1, 1).step("r", "i0", "i0");
  xml.gpu(1, 0, 0).tb(0, -1).step("s", "i0", "i0");
  const Algorithm& algorithm = import_algorithm(write("rooted.xml", xml.text()));
  EXPECT_EQ(algorithm.supports({.ranks = 2, .root = 1}), "");
  EXPECT_EQ(algorithm.supports({.ranks = 2, .root = 0}), "it is for root 1");
}

TEST(MscclImport, AMissingFileIsNamed) {
  try {
    import_algorithm("/nowhere/at_all.xml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/at_all.xml"));
  }
}

TEST(ImportRings, CombinesAllRingsInOneAllReduce) {
  const std::string rings = R"({"rings": [[0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2]], "more": 1})";
  const std::string path = write("box.json", rings);
  const Algorithm& algorithm = resolve_algorithm(Collective::all_reduce, path);
  EXPECT_EQ(algorithm.name, "box");
  EXPECT_EQ(algorithm.id, id_of(rings));
  EXPECT_EQ(algorithm.supports({.ranks = 5}), "it is for 4 ranks");
  for (const Arithmetic arithmetic : {Arithmetic::none, Arithmetic::means, Arithmetic::scaled}) {
    const Verdict verdict = verify(algorithm, {.ranks = 4}, arithmetic);
    EXPECT_EQ(verdict.grade, Grade::same_bits) << verdict.problem;
  }
  const Program program = algorithm.emit({.ranks = 4, .rank = 3});
  EXPECT_EQ(program.input_chunks, 12);
  EXPECT_EQ(program.fan_out, 3) << "rank 0 sends to 1, 2 and 3";
}

TEST(ImportRings, RefusesInvalidRings) {
  for (const auto& [text, problem] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "rings"},
           {R"({"rings": []})", "no rings"},
           {R"({"rings": [[0, 1], [0, 1, 2]]})", "rings[1] has 3 ranks"},
           {R"({"rings": [[0, 2]]})", "rank 2 of 2"},
           {R"({"rings": [[0, 0]]})", "rank 0 twice"},
           {R"({"rings": [0, 1]})", "wrong.json"}}) {
    try {
      import_algorithm(write("wrong.json", text));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(problem));
    }
  }
}

TEST(Resolve, AcceptsNamesAndFiles) {
  EXPECT_EQ(resolve_algorithm(Collective::all_gather, "ring").collective, Collective::all_gather);
  const std::string path = write("resolved.xml", all_reduce(4));
  EXPECT_EQ(&resolve_algorithm(Collective::all_reduce, path), &import_algorithm(path));
  EXPECT_THROW(resolve_algorithm(Collective::all_reduce, "no_such_thing"), Error);
  const char* composed = "hierarchical(ring,ring,ring)";
  EXPECT_EQ(resolve_algorithm(Collective::all_reduce, composed).name, composed);
  EXPECT_THROW(resolve_algorithm(Collective::all_gather, composed), Error);
  try {
    resolve_algorithm(Collective::all_gather, path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("for all_reduce, not for all_gather"));
  }
}

TEST(LoadAlgorithmFiles, ImportsTheFilesNamedInTheSetting) {
  const std::string a = write("setting_a.xml", all_reduce(5));
  const std::string b = write("setting_b.xml", all_reduce(6));
  settings().set("TUTTI_ALGORITHM_FILES", cat(a, ':', b));
  load_algorithm_files();
  EXPECT_NE(find_algorithm(Collective::all_reduce, "setting_a"), nullptr);
  EXPECT_NE(find_algorithm(Collective::all_reduce, "setting_b"), nullptr);
  settings().set("TUTTI_ALGORITHM_FILES", "/nowhere/at_all.xml");
  EXPECT_THROW(load_algorithm_files(), Error);
  settings().set("TUTTI_ALGORITHM_FILES", "");
  load_algorithm_files();
}

}  // namespace
}  // namespace tutti
