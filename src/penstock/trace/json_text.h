// JSON from files: read with complaints that say where, and written whatever bytes its strings hold.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace penstock {

/// What is wrong with `text`, called `what` ("the trace"), in which nlohmann::json found `error`: with line and column,
/// and whether the text breaks off, as that of a truncated file does. One line.
std::string complaint_about_json(std::string_view text, std::string_view what, const nlohmann::json::exception& error);

}  // namespace penstock
