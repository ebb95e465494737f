// Every function on values gives what torch gives, standalone and as a node of a graph.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/model/model.h"

namespace penstock::test {
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

const std::vector<Function> functions{
    {"flatten", [](const Values& v) { return flatten(v[0]); }, [](const Tensors& t) { return t[0].flatten(1); }},
    {"flatten", [](const Values& v) { return flatten(v[0], 0); }, [](const Tensors& t) { return t[0].flatten(0); }},
    {"relu", [](const Values& v) { return relu(v[0]); }, [](const Tensors& t) { return torch::relu(t[0]); }},
    {"add", [](const Values& v) { return v[0] + v[1]; }, [](const Tensors& t) { return t[0] + t[1]; }},
    {"sub", [](const Values& v) { return v[0] - v[1]; }, [](const Tensors& t) { return t[0] - t[1]; }},
    {"mul", [](const Values& v) { return v[0] * v[1]; }, [](const Tensors& t) { return t[0] * t[1]; }},
    {"matmul", [](const Values& v) { return matmul(v[0], v[1]); },
     [](const Tensors& t) { return torch::matmul(t[0], t[1]); }},
    {"concat", [](const Values& v) { return concat(v, 2); }, [](const Tensors& t) { return torch::cat(t, 2); }},
    {"concat", [](const Values& v) { return concat({v[1], v[0], v[1]}, 0); },
     [](const Tensors& t) { return torch::cat({t[1], t[0], t[1]}, 0); }},
    {"norm", [](const Values& v) { return apply("norm", [](const Tensors& t) { return t[1].norm(); }, {v[0], v[1]}); },
     [](const Tensors& t) { return t[1].norm(); }},
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
    for (const ValueRef& input : graph.nodes[0].inputs) arguments.push_back(tensors[static_cast<std::size_t>(input.output)]);
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
    const Tensors ours = gradients([&](const Tensors& t) { return function.on_values(Values(t.begin(), t.end())).tensor(); });
    const Tensors theirs = gradients(function.on_tensors);
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << function.node;
      if (!ours[i].defined()) continue;
      EXPECT_TRUE(torch::equal(ours[i], theirs[i])) << function.node;
    }
  }
}

}  // namespace
}  // namespace penstock::test
