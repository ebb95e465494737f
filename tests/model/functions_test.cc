// Every function on values gives torch's result, standalone and as a node of a graph.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/model/model.h"

namespace penstock::test::functions_test {
namespace {

struct Function {
  std::string node;
  std::function<Value(const Values&)> on_values;
  std::function<torch::Tensor(const Tensors&)> on_tensors;
};

class Calls : public Cell {
 public:
  explicit Calls(const Function& function) : function_(function) {}
  Values forward_many(Values inputs) override { return {function_.on_values(inputs)}; }

 private:
  const Function& function_;
};

const std::vector<std::int64_t> last_two{1, 2};
const auto norm = [](const Tensors& t) { return t[1].norm(); };
const auto twice_the_last = [](auto x) {
  x.insert(x.begin(), x.back());
  return x;
};

/// A function whose call looks the same for values and for tensors.
Function same(std::string node, auto call) { return {std::move(node), call, call}; }

const std::vector<Function> functions{
    {"flatten", [](const Values& v) { return flatten(v[0]); }, [](const Tensors& t) { return t[0].flatten(1); }},
    same("flatten", [](const auto& x) { return flatten(x[0], 0); }),
    same("relu", [](const auto& x) { return relu(x[0]); }),
    same("add", [](const auto& x) { return x[0] + x[1]; }),
    same("sub", [](const auto& x) { return x[0] - x[1]; }),
    same("mul", [](const auto& x) { return x[0] * x[1]; }),
    same("div", [](const auto& x) { return x[0] / x[1]; }),
    same("neg", [](const auto& x) { return -x[0]; }),
    same("matmul", [](const auto& x) { return matmul(x[0], x[1]); }),
    same("gelu", [](const auto& x) { return gelu(x[0]); }),
    same("sigmoid", [](const auto& x) { return sigmoid(x[0]); }),
    same("tanh", [](const auto& x) { return tanh(x[0]); }),
    same("softmax", [](const auto& x) { return softmax(x[0], 1); }),
    same("unsqueeze", [](const auto& x) { return unsqueeze(x[0], 1); }),
    same("transpose", [](const auto& x) { return transpose(x[0], 0, 2); }),
    {"scale", [](const Values& v) { return scale(v[0], 0.5); }, [](const Tensors& t) { return t[0] * 0.5; }},
    {"concat", [](const Values& v) { return concat(v, 2); }, [](const Tensors& t) { return torch::cat(t, 2); }},
    {"concat", [](const Values& v) { return concat(twice_the_last(v), 0); },
     [](const Tensors& t) { return torch::cat(twice_the_last(t), 0); }},
    {"matmul", [](const Values& v) { return matmul(v[0], v[1], {.transpose_b = true}); },
     [](const Tensors& t) { return torch::matmul(t[0], t[1].transpose(1, 2)); }},
    {"matmul", [](const Values& v) { return matmul(v[0], v[1], {.transpose_a = true}); },
     [](const Tensors& t) { return torch::matmul(t[0].transpose(1, 2), t[1]); }},
    {"mean", [](const Values& v) { return mean(v[0], last_two); },
     [](const Tensors& t) { return t[0].mean(last_two, false); }},
    {"mean", [](const Values& v) { return mean(v[0], {-1}, true); },
     [](const Tensors& t) { return t[0].mean({-1}, true); }},
    {"slice", [](const Values& v) { return slice(v[0], {.dimension = 1, .begin = 1}); },
     [](const Tensors& t) { return t[0].narrow(1, 1, 2); }},
    {"slice", [](const Values& v) { return slice(v[0], {.dimension = 2, .begin = 0, .end = -1, .step = 2}); },
     [](const Tensors& t) { return t[0].narrow(2, 0, 1); }},
    {"reshape", [](const Values& v) { return reshape(v[0], {-1}); }, [](const Tensors& t) { return t[0].flatten(1); }},
    {"norm", [](const Values& v) { return apply("norm", norm, v); }, norm},
};

TEST(Functions, equal_those_of_torch) {
  torch::manual_seed(1);
  const Tensors tensors{torch::randn({2, 3, 3}), torch::randn({2, 3, 3})};
  for (const Function& function : functions) {
    Calls network(function);
    const torch::Tensor expected = function.on_tensors(tensors);
    EXPECT_TRUE(torch::equal(network(Values(tensors.begin(), tensors.end()))[0].tensor(), expected)) << function.node;

    const Graph graph = trace_graph(network, 2);
    ASSERT_EQ(graph.nodes.size(), 1U) << function.node;
    EXPECT_EQ(graph.nodes[0].name, function.node);
    EXPECT_EQ(graph.nodes[0].outputs, 1);
    Tensors arguments;
    for (const ValueRef& input : graph.nodes[0].inputs)
      arguments.push_back(tensors[static_cast<std::size_t>(input.output)]);
    EXPECT_TRUE(torch::equal(graph.nodes[0].function(arguments).at(0), expected)) << function.node;
  }
}

TEST(Functions, gradients_flow) {
  for (const Function& function : functions) {
    const auto gradients = [&](const auto& call) {
      torch::manual_seed(2);
      Tensors leaves{torch::randn({2, 3, 3}).requires_grad_(true), torch::randn({2, 3, 3}).requires_grad_(true)};
      call(leaves).square().sum().backward();
      return Tensors{leaves[0].grad(), leaves[1].grad()};
    };
    const Tensors ours =
        gradients([&](const Tensors& t) { return function.on_values(Values(t.begin(), t.end())).tensor(); });
    const Tensors theirs = gradients(function.on_tensors);
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << function.node;
      if (!ours[i].defined()) continue;
      EXPECT_TRUE(torch::equal(ours[i], theirs[i])) << function.node;
    }
  }
}

TEST(Functions, gather_selects_rows) {
  const torch::Tensor table = torch::randn({5, 3}), rows = torch::tensor({{4, 0}, {1, 1}}, torch::kInt32);
  const torch::Tensor taken = gather(Value(table), Value(rows)).tensor();
  EXPECT_EQ(taken.sizes(), (std::vector<std::int64_t>{2, 2, 3}));
  EXPECT_TRUE(taken[0][0].equal(table[4]) && taken[1][1].equal(table[1]));
  EXPECT_TRUE(gather(Value(table), Value(torch::tensor({2})), -1).tensor().equal(table.narrow(1, 2, 1)));
}

TEST(Functions, squeeze_removes_only_dimensions_of_size_1) {
  EXPECT_EQ(squeeze(Value(torch::zeros({2, 1, 3})), 1).tensor().sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_THROW(squeeze(Value(torch::zeros({2, 2})), 1), ScheduleError);
}

TEST(Functions, split_gives_several_values) {
  const torch::Tensor whole = torch::randn({2, 7});
  const Values parts = split(Value(whole), 3, 1);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(torch::cat({parts[0].tensor(), parts[1].tensor(), parts[2].tensor()}, 1).equal(whole));
}

}  // namespace
}  // namespace penstock::test::functions_test
