// Writes JSON, and describes what is wrong with JSON that was read. Not for public headers: only our own source files
// find nlohmann_json.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace penstock {

/// The text of `value`: one line, or lines with `indent` spaces for each level. Names are free text, so bytes that are
/// not UTF-8 become replacement characters.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// As json_text(), but throws DataError for bytes that are not UTF-8; `what` names the value ("this plan").
std::string exact_json_text(const nlohmann::ordered_json& value, std::string_view what, int indent);

/// The document of a text that Penstock itself wrote, with the members of its objects in their order. Throws
/// nlohmann::json::exception for any other text.
nlohmann::ordered_json parse_in_order(std::string_view text);

/// One line that describes `error`, which nlohmann::json found in `text`. `what` names the text ("the trace"). The line
/// has the position of the error, and a hint if the text is truncated.
std::string complaint_about_json(std::string_view text, std::string_view what, const nlohmann::json::exception& error);

}  // namespace penstock
