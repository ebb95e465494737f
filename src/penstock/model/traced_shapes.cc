#include "penstock/model/traced_shapes.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Restores the process's generator at the end.
class SavedGenerator {
 public:
  SavedGenerator() : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~SavedGenerator() { generator_.set_state(state_); }
  SavedGenerator(const SavedGenerator&) = delete;
  SavedGenerator& operator=(const SavedGenerator&) = delete;

 private:
  at::Generator generator_;
  torch::Tensor state_;
};

/// The message of the current exception, without LibTorch's backtrace.
std::string message_of(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return torch ? torch->what_without_backtrace() : error.what();
}

}  // namespace

TracedShapes::TracedShapes(const TraceSample& sample) {
  is_known_ = !sample.inputs.empty() && std::all_of(sample.inputs.begin(), sample.inputs.end(),
                                                    [](const auto& input) { return input.defined(); });
  if (!is_known_) return;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const torch::Tensor& input = sample.inputs[i];
    const std::optional<int> dimension = i < sample.samples_along.size() ? sample.samples_along[i] : 0;
    Pair& pair = inputs_.emplace_back();
    for (std::size_t k = 0; k < samples.size(); ++k) {
      std::vector<std::int64_t> sizes = input.sizes().vec();
      if (dimension && *dimension < input.dim()) sizes[static_cast<std::size_t>(*dimension)] = samples[k];
      pair[k] = torch::zeros(sizes, input.scalar_type());
    }
  }
}

const TracedShapes::Pair& TracedShapes::pair_of(const ValueRef& value) const {
  if (value.is_graph_input()) return inputs_[static_cast<std::size_t>(value.output)];
  return of_node_[static_cast<std::size_t>(value.node)].values[static_cast<std::size_t>(value.output)];
}

TracedShape TracedShapes::of(const Graph& graph, const ValueRef& value) {
  const std::string what =
      "forward reads the shape of '" + graph.name_of(value) + "', which is not known while the network is traced: ";
  constexpr const char* otherwise = "put the code that needs it into penstock::apply(name, function, {values})";
  require<ScheduleError>(is_known_ && static_cast<int>(inputs_.size()) == graph.inputs, what,
                         "give some samples (PipelineOptions::sample), or ", otherwise);
  if (!value.is_graph_input()) {
    const auto node = static_cast<std::size_t>(value.node);
    while (of_node_.size() <= node) {
      Outputs outputs;
      run(graph.nodes[of_node_.size()], outputs);
      of_node_.push_back(std::move(outputs));
    }
    require<ScheduleError>(of_node_[node].failure.empty(), what, of_node_[node].failure, "; ", otherwise);
  }
  const Pair& pair = pair_of(value);
  require<ScheduleError>(pair[0].defined() && pair[1].defined(), what, "there is none; ", otherwise);
  TracedShape shape{{}, pair[0].scalar_type()};
  for (std::int64_t d = 0; d < pair[0].dim(); ++d) {
    const std::int64_t of_two = pair[0].size(d), of_three = pair[1].size(d);
    const std::int64_t factor = of_two / samples[0];
    const bool is_number = of_two == of_three;
    require<ScheduleError>(is_number || (of_two == factor * samples[0] && of_three == factor * samples[1]), what,
                           "dimension ", d, " is no multiple of the number of samples; ", otherwise);
    shape.sizes.push_back(is_number ? Size(of_two) : Size::of_samples(factor));
  }
  return shape;
}

void TracedShapes::run(const Node& node, Outputs& outputs) {
  for (const ValueRef& input : node.inputs)
    if (!input.is_graph_input() && !of_node_[static_cast<std::size_t>(input.node)].failure.empty()) {
      outputs.failure = of_node_[static_cast<std::size_t>(input.node)].failure;
      return;
    }
  const torch::NoGradGuard no_grad;
  const SavedGenerator generator;
  try {
    TensorFunction call = node.function;
    std::shared_ptr<torch::nn::Module> module;
    if (node.is_layer()) {
      const BuiltLayer built = build_layer(node.layer->factory, {});
      module = built.module;
      module->eval();
      call = built.forward;
    }
    outputs.values.resize(static_cast<std::size_t>(node.outputs));
    for (std::size_t k = 0; k < samples.size(); ++k) {
      Tensors arguments;
      // Clones, because a layer may modify its inputs in place.
      for (const ValueRef& input : node.inputs) {
        const torch::Tensor& argument = pair_of(input)[k];
        arguments.push_back(argument.defined() ? argument.clone() : argument);
      }
      const Tensors results = call(arguments);
      if (static_cast<int>(results.size()) != node.outputs) {
        outputs.failure = say("'", node.name, "' returns another number of values than it declares");
        return;
      }
      for (std::size_t i = 0; i < results.size(); ++i) outputs.values[i][k] = results[i];
    }
  } catch (const std::exception& error) {
    outputs.failure = say("'", node.name, "' fails on samples of zeros (", message_of(error), ")");
  }
}

}  // namespace penstock
