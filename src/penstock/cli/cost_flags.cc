#include "penstock/cli/cost_flags.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/stage_cost_text.h"

namespace penstock {
namespace {

std::vector<double> parse_bytes_list(const std::string& text) {
  std::vector<double> list;
  for (const std::string_view item : comma_separated(text)) {
    const std::optional<std::int64_t> bytes = parse_bytes(item);
    require<ConfigError>(bytes.has_value(), "--activation-bytes: '", item,
                         "' is no number of bytes; write bytes as 24MiB or 24MiB,16MiB, with the units ",
                         byte_unit_names);
    list.push_back(static_cast<double>(*bytes));
  }
  return list;
}

}  // namespace

void CostFlags::add_to(CLI::App& verb) {
  const auto add = [&](const char* flag, std::optional<std::string>& text, const char* type, const char* what) {
    verb.add_option(flag, text, what)->type_name(type);
  };
  constexpr const char* per_stage = "COST[,COST...]";
  add("--cost-f", forward_, per_stage, "F, the forward of one micro-batch: for all stages, or one for each [1]");
  add("--cost-i", input_grad_, per_stage, "I, the gradient of a stage's inputs [1]");
  add("--cost-w", weight_grad_, per_stage, "W, the gradient of a stage's parameters; B takes I + W [1]");
  add("--cost-update", update_, per_stage, "the optimiser's step [0]");
  add("--cost-comm", message_, "COST", "C, the time a message takes [0]");
  verb.add_option("--weight-share", weight_share_, "fraction of a micro-batch's activations that W needs after I [0.5]")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE");
  add("--activation-bytes", activation_bytes_, "BYTES[,BYTES...]",
      "the activations of one micro-batch, such as 24MiB: for all stages, or for each; for a --memory-limit in bytes");
  add("--cost-file", file_, "FILE", "these costs as JSON; flags go before it (docs/schedule_format.md)");
}

StageCosts CostFlags::costs() const {
  StageCosts costs = file_ ? read_file(*file_, read_stage_costs) : StageCosts::unit();
  const auto take = [](const char* flag, const std::optional<std::string>& text, std::vector<double>& into) {
    if (text) into = parse_cost_list(flag, *text);
  };
  take("--cost-f", forward_, costs.forward);
  take("--cost-i", input_grad_, costs.input_grad);
  take("--cost-w", weight_grad_, costs.weight_grad);
  take("--cost-update", update_, costs.update);
  std::vector<double> message{costs.message};
  take("--cost-comm", message_, message);
  require<ConfigError>(message.size() == 1, "--cost-comm ", message_.value_or(""), ": there are ", message.size(),
                       " costs, and all messages take the same: give 1");
  costs.message = message.front();
  costs.weight_share = weight_share_.value_or(costs.weight_share);
  if (activation_bytes_) costs.activation_bytes = parse_bytes_list(*activation_bytes_);
  return costs;
}

}  // namespace penstock
