// Which layers each stage of a run had, as one line of text: what the settings of a trace say of its partition.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Settings of a trace that advise() reads, where they are there: the layers of the stages, as below, and the text of a
/// cost file (docs/cost_file.md) that has them all.
inline constexpr const char* layers_setting = "layers";
inline constexpr const char* layer_costs_setting = "layer_costs";

/// By stage, the names of its layers in order of execution.
using StageLayers = std::vector<std::vector<std::string>>;

/// "embedding,block0;block1,head": stages are parted by semicolons, layers by commas. Throws DataError for a name that
/// is empty or has one of them in it, and for a stage without layers.
std::string write_stage_layers(const StageLayers& stages);
/// read_stage_layers(write_stage_layers(x)) == x. Throws DataError for text that is not of the form.
StageLayers read_stage_layers(std::string_view text);

}  // namespace penstock
