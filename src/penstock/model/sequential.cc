#include "penstock/model/sequential.h"

#include "penstock/base/error.h"

namespace penstock {
namespace {

class SequentialCell : public Cell {
 public:
  using Cell::forward;

  explicit SequentialCell(const torch::nn::Sequential& modules) {
    const std::vector<std::string> names = modules->named_children().keys();
    std::map<const torch::nn::Module*, std::size_t> first_seen;
    for (std::size_t i = 0; i < modules->size(); ++i) {
      torch::nn::AnyModule any = *(modules->begin() + static_cast<std::ptrdiff_t>(i));
      const auto [seen, is_new] = first_seen.try_emplace(any.ptr().get(), calls_.size());
      if (!is_new) {
        calls_.push_back(calls_[seen->second]);
        continue;
      }
      calls_.push_back(add_factory(names[i], {[any] { return copy_of(any); }, 1}));
    }
    require<ScheduleError>(!calls_.empty(), "the torch::nn::Sequential is empty: add a module to it");
  }

  Value forward(Value x) override {
    for (const Layer& layer : calls_) x = layer(x);
    return x;
  }

 private:
  static BuiltLayer copy_of(const torch::nn::AnyModule& original) {
    torch::nn::AnyModule copy = original.clone();
    // In a clone all parameters require gradients, even those that are frozen in the original.
    const auto originals = original.ptr()->parameters(), copies = copy.ptr()->parameters();
    for (std::size_t i = 0; i < copies.size(); ++i) copies[i].requires_grad_(originals[i].requires_grad());
    return {copy.ptr(), [copy](const Tensors& x) mutable {
              require<ScheduleError>(x.size() == 1, "a module of a torch::nn::Sequential takes one tensor, not ",
                                     x.size());
              return Tensors{copy.forward(x[0])};
            }};
  }

  std::vector<Layer> calls_;
};

}  // namespace

std::unique_ptr<Cell> from_sequential(const torch::nn::Sequential& modules) {
  return std::make_unique<SequentialCell>(modules);
}

}  // namespace penstock
