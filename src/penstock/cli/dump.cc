#include "penstock/cli/dump.h"

#include <filesystem>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/text_file.h"
#include "penstock/model/stages.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/trace.h"

namespace penstock::cli {
namespace {

std::string names_of(const Graph& graph, const std::vector<ValueRef>& values) {
  return listed(values, ", ", [&](const ValueRef& value) { return graph.name_of(value); });
}

const char* kind_of(const Node& node) {
  if (node.is_parameter()) return "parameter";
  return node.is_layer() ? "layer" : "function";
}

/// For every stage: its nodes, inputs and outputs, and the stages with which it exchanges them.
std::string stages_text(const Pipeline& pipeline) {
  const StagedGraph& staged = pipeline.stages();
  std::string text;
  for (const StagePart& part : staged.parts) {
    text += say("stage ", part.id.value(), " on rank ", pipeline.schedule().rank_of(part.id).value(), "\n  runs: ");
    text +=
        listed(part.nodes, ", ", [&](int n) { return staged.graph.nodes[static_cast<std::size_t>(n)].name; }) + "\n";
    for (int input : part.graph_inputs) text += say("  takes input ", input, "\n");
    for (const Port& port : part.receives)
      text += say("  takes from stage ", port.peer.value(), ": ", names_of(staged.graph, port.values), "\n");
    for (const Port& port : part.sends)
      text += say("  hands to stage ", port.peer.value(), ": ", names_of(staged.graph, port.values), "\n");
    if (!part.outputs.empty()) text += "  gives: " + names_of(staged.graph, part.outputs) + "\n";
  }
  return text;
}

}  // namespace

std::string graph_text(const Pipeline& pipeline) {
  const StagedGraph& staged = pipeline.stages();
  std::string text;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n) {
    const Node& node = staged.graph.nodes[n];
    const StageId stage = staged.stage_of_node[n];
    text += say(node.name, ": ", kind_of(node), ", stage ", stage.value(), ", rank ",
                pipeline.schedule().rank_of(stage).value());
    if (!node.inputs.empty()) text += ", takes " + names_of(staged.graph, node.inputs);
    for (const auto& [parameter, owner] : node.ties) text += say(", ", parameter, " is ", owner.full_name());
    text += "\n";
  }
  return text + "gives " + names_of(staged.graph, staged.graph.outputs) + "\n";
}

std::string parameters_text(const Pipeline& pipeline, const StateDict& state) {
  const StagedGraph& staged = pipeline.stages();
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(pipeline.schedule().rank_count()), 0);
  std::int64_t all = 0;
  for (const auto& item : state) {
    const std::string& name = item.key();
    std::optional<StageId> owner;  // the owner: the lowest stage that runs the layer
    for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n)
      if (staged.graph.nodes[n].is_layer() && name.starts_with(staged.graph.nodes[n].layer_path + ".") &&
          (!owner || staged.stage_of_node[n] < *owner))
        owner = staged.stage_of_node[n];
    all += item.value().numel();
    if (owner) numbers[pipeline.schedule().rank_of(*owner).index()] += item.value().numel();
  }
  std::string text;
  for (std::size_t rank = 0; rank < numbers.size(); ++rank)
    text += say("rank ", rank, ": ", numbers[rank], " parameters and buffers\n");
  return text + say("all: ", all, " parameters and buffers\n");
}

void require_dump_place(const std::string& directory) {
  std::error_code problem;
  std::filesystem::create_directories(directory, problem);
  require<ConfigError>(std::filesystem::is_directory(directory), "--dump ", directory, ": no such directory, and none ",
                       "can be made there", problem ? ": " + problem.message() : std::string());
  require_place_for(directory + "/graph.txt");
}

void dump(const Pipeline& pipeline, const std::string& directory) {
  require_dump_place(directory);
  const Schedule& schedule = pipeline.schedule();
  write_text(directory + "/graph.txt", graph_text(pipeline));
  write_text(directory + "/stages.txt", stages_text(pipeline));
  write_text(directory + "/schedule.sched", write_schedule(schedule));
  if (schedule.instruction_count() <= most_boxes_of_svg)
    write_text(directory + "/schedule.svg", schedule_svg(schedule, StageCosts::unit()));
}

}  // namespace penstock::cli
