#include "penstock/kernels/kernel_selection.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/text.h"

namespace penstock::kernels {
namespace {

constexpr std::array<const char*, 3> product_names{"forward", "input_grad", "weight_grad"};
constexpr std::array<const char*, 3> convolution_names{"library", "columns", "taps"};
constexpr std::array<const char*, 3> linear_names{"library", "bias_apart", "streamed"};

template <class Choice, std::size_t N>
Choice named(const std::array<const char*, N>& names, const std::string& name) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<Choice>(i);
  throw DataError(say("the kernel selection names '", printable(name),
                      "', which does not exist: measure again with --kernels tuned"));
}

/// Visits every number of a shape, always in the same order.
template <class Shape, class Visit>
void each_number(Shape& shape, Visit&& visit) {
  visit(shape.in);
  visit(shape.out);
  for (auto* extent : {&shape.image, &shape.geometry.kernel, &shape.geometry.stride, &shape.geometry.padding,
                       &shape.geometry.dilation}) {
    visit(extent->height);
    visit(extent->width);
  }
}

}  // namespace

Extent ConvolutionGeometry::output_of(const Extent& image) const {
  const auto output = [&](std::int64_t Extent::*side) {
    return (image.*side + 2 * padding.*side - dilation.*side * (kernel.*side - 1) - 1) / stride.*side + 1;
  };
  return {output(&Extent::height), output(&Extent::width)};
}

KernelSelection KernelSelection::tuned() {
  KernelSelection selection;
  selection.is_tuned_ = true;
  return selection;
}

void KernelSelection::choose(const ConvolutionShape& shape, Product product, ConvolutionKernel kernel) {
  convolutions_[{shape, product}] = kernel;
}

ConvolutionKernel KernelSelection::kernel_for(const ConvolutionShape& shape, Product product) const {
  const auto found = convolutions_.find({shape, product});
  return found == convolutions_.end() ? ConvolutionKernel::library : found->second;
}

LinearKernel KernelSelection::kernel_for(const LinearShape& shape) const {
  const auto found = linears_.find(shape);
  return found == linears_.end() ? LinearKernel::library : found->second;
}

bool KernelSelection::has(LinearKernel kernel) const {
  return std::ranges::any_of(linears_, [&](const auto& choice) { return choice.second == kernel; });
}

std::string KernelSelection::to_text() const {
  if (!is_tuned_) return "fixed\n";
  std::ostringstream text;
  text << "tuned\n";
  for (const auto& [shape, kernel] : linears_)
    text << "linear " << shape.in << " " << shape.out << " " << linear_names[static_cast<std::size_t>(kernel)] << "\n";
  for (const auto& [key, kernel] : convolutions_) {
    text << "convolution ";
    each_number(key.first, [&](const std::int64_t& number) { text << number << " "; });
    text << product_names[static_cast<std::size_t>(key.second)] << " "
         << convolution_names[static_cast<std::size_t>(kernel)] << "\n";
  }
  return text.str();
}

KernelSelection KernelSelection::from_text(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string first;
  std::getline(lines, first);
  if (first == "fixed") return fixed();
  require<DataError>(first == "tuned", "the kernel selection begins with '", printable(first), "'");
  KernelSelection selection = tuned();
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string layer, product, kernel;
    fields >> layer;
    if (layer == "linear") {
      LinearShape shape;
      fields >> shape.in >> shape.out >> kernel;
      selection.choose(shape, named<LinearKernel>(linear_names, kernel));
      continue;
    }
    ConvolutionShape shape;
    each_number(shape, [&](std::int64_t& number) { fields >> number; });
    fields >> product >> kernel;
    require<DataError>(layer == "convolution" && !fields.fail(), "the kernel selection has the invalid line '",
                       printable(line), "'");
    selection.choose(shape, named<Product>(product_names, product),
                     named<ConvolutionKernel>(convolution_names, kernel));
  }
  return selection;
}

std::string KernelSelection::fingerprint() const { return is_tuned_ ? hash_digits(text_hash(to_text())) : "fixed"; }

}  // namespace penstock::kernels
