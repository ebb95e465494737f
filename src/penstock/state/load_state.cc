#include "penstock/state/load_state.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/world/collectives.h"

namespace penstock {
namespace {

constexpr std::size_t shown_differences = 3;

/// Lines: "+name" for a tensor of this rank that fits, "!error" for one that does not.
std::string findings(const RankStages& stages, const StateForm& stored) {
  std::string lines;
  for (const auto& stage : stages)
    for (const Stage::Held& held : stage->state()) {
      const auto found = stored.tensors.find(held.name);
      if (found == stored.tensors.end()) {
        lines += say("!the network has '", held.name, "' of shape ", held.value.sizes(), ", which the ", stored.what,
                     " does not have\n");
        continue;
      }
      const TensorForm& form = found->second;
      const bool fits = held.value.sizes() == form.shape && held.value.dtype().name() == form.dtype;
      lines += fits ? say("+", held.name, "\n")
                    : say("!'", held.name, "' is ", held.value.dtype().name(), " of shape ", held.value.sizes(),
                          " in the network and ", form.dtype, " of shape ", at::IntArrayRef(form.shape), " in the ",
                          stored.what, "\n");
    }
  return lines;
}

/// The text for all ranks' lines, on rank 0. A tied parameter has a line for each of its stages.
std::string text_of(const std::string& lines, const StateForm& stored) {
  std::vector<std::string> differences;
  std::set<std::string> seen;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);)
    if (seen.insert(line.substr(1)).second && line.starts_with('!')) differences.push_back(line.substr(1));
  if (differences.empty())
    for (const auto& [name, form] : stored.tensors)
      if (!seen.contains(name))
        differences.push_back(say("the ", stored.what, " has '", name, "', which the network does not have"));
  std::string text;
  for (std::size_t i = 0; i < std::min(differences.size(), shown_differences); ++i)
    text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > shown_differences) text += say("; and ", differences.size() - shown_differences, " more");
  return text;
}

StateForm form_of(const std::map<std::string, torch::Tensor>& state) {
  StateForm form;
  for (const auto& [name, value] : state)
    form.tensors[name] =
        value.defined() ? TensorForm{std::string(value.dtype().name()), value.sizes().vec()} : TensorForm{"nothing"};
  return form;
}

}  // namespace

std::string misfit(const RankContext& context, const Tag& tag, const RankStages& stages, const StateForm& stored) {
  const auto decide = [&](const std::vector<Message>& all) {
    std::string lines;
    for (const Message& message : all) lines += text_in(message);
    return message_of(text_of(lines, stored));
  };
  return text_in(agree(context, tag, message_of(findings(stages, stored)), decide,
                       {.parts = "what fits of a " + stored.what, .decision = "whether a " + stored.what + " fits"}));
}

std::string load_values(const RankContext& context, const Tag& tag, const RankStages& stages,
                        const std::map<std::string, torch::Tensor>& state) {
  const std::string text = misfit(context, control_tag(tag.pipeline, Topic::state, tag.step), stages, form_of(state));
  if (!text.empty()) return text;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages)
    for (const Stage::Held& held : stage->state()) torch::Tensor(held.value).copy_(state.at(held.name));
  return text;
}

}  // namespace penstock
