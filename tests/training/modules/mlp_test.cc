#include "training/modules/mlp.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/training/support/gradient_check.h"

namespace tutti::training::testing {
namespace {

Tensor forward(const Mlp& mlp, Pass& pass, ConstTensor x, Mlp::Saved& saved) {
  const Tensor before = pass.arena.take(x.dtype, x.rows, mlp.before_width());
  mlp.project(pass, x, saved, before);
  const Tensor output = pass.arena.take(x.dtype, x.rows, x.cols);
  mlp.activate(pass, saved);
  mlp.finish(pass, saved, output);
  return output;
}

std::vector<std::string> names(const ParameterTable& table) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : table.specs()) names.push_back(spec.name);
  return names;
}

TEST(MlpTest, Parameters) {
  ParameterTable gelu_table, swiglu_table;
  const Mlp gelu_mlp(gelu_table, "m", {.width = 3, .hidden = 4});
  const Mlp swiglu_mlp(swiglu_table, "m",
                       {.width = 3, .hidden = 4, .kind = MlpKind::swiglu, .bias = false});
  EXPECT_EQ(names(gelu_table), (std::vector<std::string>{"m.c_fc.weight", "m.c_fc.bias",
                                                         "m.c_proj.weight", "m.c_proj.bias"}));
  EXPECT_EQ(names(swiglu_table),
            (std::vector<std::string>{"m.w_gate.weight", "m.w_up.weight", "m.w_down.weight"}));
}

TEST(MlpTest, Gradients) {
  for (const MlpKind kind : {MlpKind::gelu, MlpKind::swiglu}) {
    for (const bool bias : {false, true}) {
      for (const int64_t rows : {1, 3}) {
        for (const auto& [width, hidden] :
             std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 7}, {7, 33}}) {
          SCOPED_TRACE(::testing::Message() << rows << " x " << width << " by " << hidden);
          ParameterTable table;
          const Mlp mlp(table, "m", {.width = width, .hidden = hidden, .kind = kind, .bias = bias});
          TestPass test;
          Mlp::Saved saved;
          const HostTensor x = random_tensor(DType::f64, rows, width, 3);
          expect_gradients(
              {[&](Pass& pass, ConstTensor input) { return forward(mlp, pass, input, saved); },
               [&](Pass& pass, ConstTensor dy) { return mlp.backward(pass, dy, saved); }},
              table, test, x);
        }
      }
    }
  }
}

// The backward pass gives the same bits with a recomputed activation.
TEST(MlpTest, Recomputed) {
  for (const MlpKind kind : {MlpKind::gelu, MlpKind::swiglu}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      ParameterTable table;
      const Mlp mlp(table, "m", {.width = 5, .hidden = 33, .kind = kind});
      const HostTensor x = random_tensor(type, 4, 5, 3), dy = random_tensor(type, 4, 5, 4);
      const auto run = [&](bool recompute) {
        TestPass test(type);
        Mlp::Saved saved;
        const BoundParameters parameters(table, type);
        forward(mlp, test.pass, x, saved);
        if (recompute) {
          saved.out.input = {};
          mlp.activate(test.pass, saved);
        }
        std::vector<double> all = doubles(mlp.backward(test.pass, dy, saved));
        for (int i = 0; i < parameters.size(); ++i) {
          const std::vector<double> gradient = doubles(parameters.gradient(i));
          all.insert(all.end(), gradient.begin(), gradient.end());
        }
        return all;
      };
      EXPECT_EQ(run(true), run(false));
    }
  }
}

}  // namespace
}  // namespace tutti::training::testing
