#include <algorithm>
#include <charconv>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/plan/cut.h"

namespace penstock {
namespace {

/// "0 layer1, 1 relu1, 2 layer2": as many as a person reads.
std::string listed(const std::vector<LayerSize>& layers) {
  constexpr std::size_t most = 60;
  std::string text;
  for (std::size_t i = 0; i < std::min(layers.size(), most); ++i)
    text += say(i > 0 ? ", " : "", i, " ", layers[i].name);
  return layers.size() > most ? say(text, ", ... ", layers.size() - 1, " ", layers.back().name) : text;
}

std::optional<std::size_t> find_layer(std::string_view word, const std::vector<LayerSize>& layers) {
  const auto named = std::find_if(layers.begin(), layers.end(), [&](const auto& layer) { return layer.name == word; });
  if (named != layers.end()) return static_cast<std::size_t>(named - layers.begin());
  std::size_t number = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool is_number = problem == std::errc() && end == word.data() + word.size();
  return is_number && number < layers.size() ? std::optional(number) : std::nullopt;
}

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  if (list.empty()) return words;
  for (std::size_t comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    words.push_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  words.push_back(list);
  return words;
}

}  // namespace

Cut cut_layers(std::string_view cut, const std::vector<LayerSize>& layers, int stages) {
  if (cut == "parameters") return cut_by_parameters(layers, stages);
  if (cut == "uniform") return cut_uniformly(layers, stages);

  const std::vector<std::string_view> words = words_of(cut);
  require<PlanError>(stages >= 1 && words.size() == static_cast<std::size_t>(stages) - 1, "cut '", cut, "' names ",
                     words.size(), " layers, but ", stages, " stages need ", stages - 1,
                     ": the first layer of every stage but the first; the layers are ", listed(layers));
  Cut result(layers.size(), StageId(0));
  std::size_t previous = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto start = find_layer(words[i], layers);
    require<PlanError>(start.has_value(), "cut '", cut, "': there is no layer '", words[i], "'; the layers are ",
                       listed(layers));
    require<PlanError>(*start > previous, "cut '", cut, "': stage ", i + 1, " would begin at layer ", *start, " (",
                       words[i], "), not after layer ", previous, " where stage ", i,
                       " begins; name them in ascending order; the layers are ", listed(layers));
    std::fill(result.begin() + static_cast<std::ptrdiff_t>(*start), result.end(),
              StageId(static_cast<std::int32_t>(i + 1)));
    previous = *start;
  }
  return result;
}

}  // namespace penstock
