#include "penstock/model/layer_list.h"

#include <algorithm>
#include <map>
#include <set>

#include <torch/nn/modules.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

template <class... M>
std::vector<CallableKind> callable_kinds() {
  return {callable_kind<M>()...};
}

using torch::nn::AnyModule;
using torch::nn::Module;

/// A submodule and its full name.
struct Submodule {
  std::string name;
  std::shared_ptr<Module> module;
  std::optional<AnyModule> any;  // set inside a Sequential, which can call its modules
};

/// The direct children of `above`.
std::vector<Submodule> submodules_of(const Submodule& above) {
  std::vector<Submodule> below;
  for (const auto& child : above.module->named_children())
    below.push_back({above.name.empty() ? child.key() : above.name + "." + child.key(), child.value(), std::nullopt});
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(above.module.get()))
    for (std::size_t i = 0; i < below.size(); ++i)
      below[i].any = *(sequential->begin() + static_cast<std::ptrdiff_t>(i));
  return below;
}

void collect(const Submodule& above, std::vector<Submodule>& all) {
  for (const Submodule& submodule : submodules_of(above)) {
    all.push_back(submodule);
    collect(submodule, all);
  }
}

bool only_lists(const Module& module) {
  return dynamic_cast<const torch::nn::ModuleListImpl*>(&module) ||
         dynamic_cast<const torch::nn::ModuleDictImpl*>(&module);
}

bool is_container(const Module& module) {
  return only_lists(module) || dynamic_cast<const torch::nn::SequentialImpl*>(&module);
}

void unroll(const Submodule& above, ExecutionSequence& sequence) {
  for (const Submodule& submodule : submodules_of(above))
    if (is_container(*submodule.module))
      unroll(submodule, sequence);
    else
      sequence.emplace_back(submodule.name);
}

/// A clone with the original names; SequentialImpl::clone() renumbers the modules.
std::shared_ptr<torch::nn::SequentialImpl> copy_of(torch::nn::SequentialImpl& original) {
  auto copy = std::make_shared<torch::nn::SequentialImpl>();
  const auto names = original.named_children().keys();
  for (std::size_t i = 0; i < names.size(); ++i)
    copy->push_back(names[i], (original.begin() + static_cast<std::ptrdiff_t>(i))->clone());
  return copy;
}

Tensors call(AnyModule& module, const Tensors& x) {
  if (x.size() == 1) return {module.forward(x[0])};
  if (x.size() == 2) return {module.forward(x[0], x[1])};
  if (x.size() == 3) return {module.forward(x[0], x[1], x[2])};
  traits::wrong_input_count(*module.ptr(), x.size());
}

BuiltLayer copy_of(const Submodule& original, const CallableKind* kind) {
  const auto copy = [&]() -> BuiltLayer {
    if (original.any) {
      AnyModule any = original.any->clone();
      return {any.ptr(), [any](const Tensors& x) mutable { return call(any, x); }};
    }
    const auto sequential = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(original.module);
    return kind->call(sequential ? copy_of(*sequential) : original.module->clone());
  };
  BuiltLayer built;
  try {
    built = copy();
  } catch (const c10::Error& error) {
    throw ScheduleError(say("'", original.name, "' cannot be copied, which every rank needs: derive ",
                            original.module->name(), " from torch::nn::Cloneable (", error.what_without_backtrace(),
                            ")"));
  }
  copy_values(*built.module, *original.module);
  return built;
}

/// Parameters by name. After `decoder->weight = embedding->weight` the module still registers the decoder's own weight,
/// which is unused; this function returns the weight in use.
std::vector<std::pair<std::string, torch::Tensor>> parameters_used_by(const Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> used;
  const auto* linear = dynamic_cast<const torch::nn::LinearImpl*>(&module);
  const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module);
  for (const auto& parameter : module.named_parameters()) {
    torch::Tensor value = parameter.value();
    if (linear && parameter.key() == "weight") value = linear->weight;
    if (embedding && parameter.key() == "weight") value = embedding->weight;
    used.emplace_back(parameter.key(), value);
  }
  return used;
}

/// A Cell per prefix of the layers' names: "a.b.c" becomes layer "c" of Cell "b" of Cell "a".
class Folder : public Cell {
 public:
  Layer add_layer(const std::string& name, LayerFactory factory) {
    const std::size_t dot = name.find('.');
    if (dot == std::string::npos) return add_factory(name, std::move(factory));
    auto& inner = folders_[name.substr(0, dot)];
    if (!inner) {
      inner = std::make_unique<Folder>();
      add(name.substr(0, dot), *inner);
    }
    return inner->add_layer(name.substr(dot + 1), std::move(factory));
  }

 private:
  std::map<std::string, std::unique_ptr<Folder>> folders_;
};

/// A function in a Cell of its own, so that it can have a stage.
class FunctionCell : public Cell {
 public:
  FunctionCell(std::string name, TensorFunction function, int outputs)
      : name_(std::move(name)), function_(std::move(function)), outputs_(outputs) {}
  Values forward_many(Values inputs) override { return apply(name_, function_, inputs, outputs_); }

 private:
  std::string name_;
  TensorFunction function_;
  int outputs_;
};

}  // namespace

const std::vector<CallableKind>& torch_kinds() {
  using namespace torch::nn;
  static const std::vector<CallableKind> all = callable_kinds<
      SequentialImpl, LinearImpl, BilinearImpl, IdentityImpl, FlattenImpl, UnflattenImpl, EmbeddingImpl,
      EmbeddingBagImpl, Conv1dImpl, Conv2dImpl, Conv3dImpl, ConvTranspose1dImpl, ConvTranspose2dImpl,
      ConvTranspose3dImpl, BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, InstanceNorm1dImpl, InstanceNorm2dImpl,
      InstanceNorm3dImpl, LayerNormImpl, GroupNormImpl, LocalResponseNormImpl, DropoutImpl, Dropout2dImpl,
      Dropout3dImpl, AlphaDropoutImpl, FeatureAlphaDropoutImpl, ReLUImpl, ReLU6Impl, LeakyReLUImpl, PReLUImpl,
      RReLUImpl, ELUImpl, SELUImpl, CELUImpl, GELUImpl, GLUImpl, SiLUImpl, MishImpl, SigmoidImpl, TanhImpl, SoftmaxImpl,
      LogSoftmaxImpl, Softmax2dImpl, SoftminImpl, SoftplusImpl, SoftshrinkImpl, SoftsignImpl, HardshrinkImpl,
      HardtanhImpl, LogSigmoidImpl, TanhshrinkImpl, ThresholdImpl, MaxPool1dImpl, MaxPool2dImpl, MaxPool3dImpl,
      AvgPool1dImpl, AvgPool2dImpl, AvgPool3dImpl, AdaptiveAvgPool1dImpl, AdaptiveAvgPool2dImpl, AdaptiveAvgPool3dImpl,
      AdaptiveMaxPool1dImpl, AdaptiveMaxPool2dImpl, AdaptiveMaxPool3dImpl, LPPool1dImpl, LPPool2dImpl, ZeroPad1dImpl,
      ZeroPad2dImpl, ZeroPad3dImpl, ConstantPad1dImpl, ConstantPad2dImpl, ConstantPad3dImpl, ReflectionPad1dImpl,
      ReflectionPad2dImpl, ReplicationPad1dImpl, ReplicationPad2dImpl, UpsampleImpl, PixelShuffleImpl,
      PixelUnshuffleImpl, FoldImpl, UnfoldImpl, RNNImpl, LSTMImpl, GRUImpl, MultiheadAttentionImpl,
      TransformerEncoderLayerImpl, CosineSimilarityImpl, PairwiseDistanceImpl, FunctionalImpl>();
  return all;
}

class ListedLayers : public Folder {
 public:
  ListedLayers(const std::shared_ptr<Module>& module, ExecutionSequence sequence, std::vector<CallableKind> kinds)
      : kinds_(std::move(kinds)) {
    kinds_.insert(kinds_.end(), torch_kinds().begin(), torch_kinds().end());
    if (module) {
      const Submodule whole{"", module, std::nullopt};
      collect(whole, all_);
      require<ScheduleError>(!all_.empty(), "'", module->name(), "' has no submodules to run: register some");
      if (sequence.empty()) unroll(whole, sequence);
    }
    require<ScheduleError>(!sequence.empty(), "the sequence is empty: add layers");
    const auto is_marker = [](const Execution& entry) { return entry.kind_ == Execution::Kind::partition; };
    if (std::any_of(sequence.begin(), sequence.end(), is_marker)) stage_ = 0;
    for (const Execution& entry : sequence) {
      switch (entry.kind_) {
        case Execution::Kind::name: add_name(entry.name_); break;
        case Execution::Kind::factory: add_factory_entry(entry); break;
        case Execution::Kind::function: add_function(entry); break;
        case Execution::Kind::partition: add_partition(); break;
      }
    }
    require<ScheduleError>(waiting_.empty(),
                           "a function at \"front\" ends the sequence: there is no name after it; "
                           "set its place to \"behind\"");
    require<ScheduleError>(!stage_ || has_layer_,
                           "the sequence ends with boundary_here: a stage needs layers after it");
    if (module) warn_of_unused(*module);
  }

  Values forward_many(Values values) override {
    for (const Step& step : steps_) values = step.layer ? step.layer->call(values) : (*step.function)(values);
    return values;
  }

 private:
  struct Step {
    std::optional<Layer> layer;
    Cell* function = nullptr;
  };
  /// A submodule, or a layer from a factory, that the sequence names once or several times.
  struct Part {
    std::string name;
    Layer layer;
    const CallableKind* kind = nullptr;  // null: called through its Sequential or factory
    int gives = 1;                       // number of outputs if `kind` is null
  };

  void add_factory_entry(const Execution& entry) {
    const bool is_new = !made_.contains(entry.name_) && (all_.empty() || !is_part(entry.name_));
    require<ScheduleError>(is_new, "the sequence has two layers called '", entry.name_, "': rename one of them");
    const Layer layer = add_layer(entry.name_, entry.make_);
    made_.emplace(entry.name_, Part{entry.name_, layer, nullptr, entry.make_.outputs});
    add_name(entry.name_);
  }

  bool is_part(const std::string& name) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Submodule& submodule) { return submodule.name == name; });
  }

  Part& part_of(const std::string& name) {
    if (const auto made = made_.find(name); made != made_.end()) return made->second;
    const Submodule& submodule = find(name);
    auto known = parts_.find(submodule.module.get());
    if (known == parts_.end()) known = parts_.emplace(submodule.module.get(), make_part(submodule)).first;
    return known->second;
  }

  void add_name(const std::string& name) {
    Part& part = part_of(name);
    const std::optional<int>& annotated = part.layer.pipeline_stage.value();
    require<ScheduleError>(!stage_ || !annotated || *annotated == *stage_, "'", name, "' is called on stage ",
                           annotated.value_or(0), " and on stage ", stage_.value_or(0),
                           ": a layer has one stage; call it only on one side of boundary_here");
    if (stage_) part.layer.pipeline_stage = *stage_;
    last_stage_ = stage_;
    has_layer_ = true;

    for (const Execution* entry : waiting_) run_function(*entry, name + ".front");
    waiting_.clear();
    if (part.kind) require_fit(name, part.kind->takes);
    steps_.push_back({part.layer, nullptr});
    last_ = name;
    giver_ = name;
    given_ = part.kind ? part.kind->gives : part.gives;
  }

  void add_function(const Execution& entry) {
    require<ScheduleError>(entry.place_ == "front" || entry.place_ == "behind", "a function has the place '",
                           entry.place_,
                           "': there are \"front\" (of the next name) and \"behind\" (the name before it)");
    if (entry.place_ == "front") {
      waiting_.push_back(&entry);
      return;
    }
    require<ScheduleError>(!last_.empty(),
                           "the sequence starts with a function that has the place \"behind\": there is no "
                           "name before it; set its place to \"front\"");
    run_function(entry, last_ + ".behind");
  }

  void add_partition() {
    require<ScheduleError>(has_layer_, "boundary_here stands ",
                           last_.empty() ? "before the first name" : "after another one",
                           ": a stage needs layers between its boundaries");
    has_layer_ = false;
    stage_ = *stage_ + 1;
  }

  /// Adds a call of a function on the stage of the last name.
  void run_function(const Execution& entry, const std::string& name) {
    require_fit(name, {entry.takes_});
    auto& cell = functions_.emplace_back(std::make_unique<FunctionCell>(name, entry.function_, entry.gives_));
    if (last_stage_) cell->pipeline_stage = *last_stage_;
    add(say("function ", functions_.size()), *cell);
    steps_.push_back({std::nullopt, cell.get()});
    giver_ = name;
    given_ = entry.gives_;
  }

  /// Checks that `name` can take the current number of values. Skipped for the first entry: the network's number of
  /// inputs is not known here.
  void require_fit(const std::string& name, const std::vector<int>& takes) const {
    if (giver_.empty()) return;
    require<ScheduleError>(std::find(takes.begin(), takes.end(), given_) != takes.end(), "'", name, "' takes ",
                           listed(takes, " or "), takes.back() == 1 ? " value" : " values", ", but '", giver_,
                           "' returns ", counted(given_, "value"), ": put a function between them that takes ", given_,
                           " and returns as many as needed");
  }

  const Submodule& find(const std::string& name) const {
    const auto named = [&](const Submodule& submodule) { return submodule.name == name; };
    const auto found = std::find_if(all_.begin(), all_.end(), named);
    if (found != all_.end()) return *found;
    std::vector<std::string> names;
    for (const Submodule& submodule : all_) names.push_back(submodule.name);
    for (const auto& [made, part] : made_) names.push_back(made);
    require<ScheduleError>(!names.empty(), "the sequence names '", name,
                           "', but it has neither a module nor a factory of that "
                           "name: {\"",
                           name, "\", [] { return ...; }}");
    throw ScheduleError(say("the sequence names '", name, "', but no submodule is called that: did you mean '",
                            nearest(name, names), "'?"));
  }

  Part make_part(const Submodule& submodule) {
    const auto kind =
        std::find_if(kinds_.begin(), kinds_.end(), [&](const CallableKind& k) { return k.fits(*submodule.module); });
    const CallableKind* known = kind == kinds_.end() ? nullptr : &*kind;
    if (!known && !submodule.any) {
      require<ScheduleError>(!only_lists(*submodule.module), "'", submodule.name, "' is a ", submodule.module->name(),
                             ", which has no forward: name what is inside it, '", submodule.name, ".0' and so on");
      throw ScheduleError(say("'", submodule.name, "' is a ", submodule.module->name(),
                              ", which layer_list cannot call without its class: pass it, ",
                              "layer_list<Kind>(...), or keep it in a torch::nn::Sequential"));
    }
    for (const auto& [other, part] : parts_) refuse_overlap(submodule, part, *other);
    const LayerFactory factory{[submodule, kind = known ? std::optional(*known) : std::nullopt] {
                                 return copy_of(submodule, kind ? &*kind : nullptr);
                               },
                               known ? known->gives : 1};
    Part made{submodule.name, add_layer(submodule.name, factory), known, 1};
    for (const auto& [name, value] : parameters_used_by(*submodule.module))
      if (const auto owner = owner_of(value)) made.layer.tie(name, owner->first, owner->second);
    return made;
  }

  /// The layer that already has this parameter, and the parameter's name there.
  std::optional<std::pair<Layer, std::string>> owner_of(const torch::Tensor& parameter) const {
    for (const auto& [module, part] : parts_)
      for (const auto& [name, value] : parameters_used_by(*module))
        if (value.is_same(parameter)) return std::pair(part.layer, name);
    return std::nullopt;
  }

  static void refuse_overlap(const Submodule& submodule, const Part& part, const Module& other) {
    const auto is_in = [](const Module& inner, const Module& outer) {
      const auto modules = outer.modules();
      return std::any_of(modules.begin(), modules.end(), [&](const auto& m) { return m.get() == &inner; });
    };
    const bool is_inside = is_in(*submodule.module, other);
    require<ScheduleError>(!is_inside && !is_in(other, *submodule.module), "the sequence names '",
                           is_inside ? part.name : submodule.name, "' and '", is_inside ? submodule.name : part.name,
                           "', which is inside it: name one of the two");
  }

  void warn_of_unused(const Module& module) const {
    std::set<const void*> used;
    for (const auto& [part, unused] : parts_)
      for (const torch::Tensor& parameter : part->parameters()) used.insert(parameter.unsafeGetTensorImpl());
    std::string first;
    std::size_t more = 0;
    for (const auto& parameter : module.named_parameters()) {
      if (used.contains(parameter.value().unsafeGetTensorImpl())) continue;
      if (first.empty())
        first = parameter.key();
      else
        ++more;
    }
    if (!first.empty())
      warn(say("the sequence leaves out '", first, "'", more > 0 ? say(" and ", more, " more parameters") : "", " of ",
               module.name(), ": they are neither run nor trained"));
  }

  std::vector<CallableKind> kinds_;
  std::vector<Submodule> all_;
  std::map<const Module*, Part> parts_;
  std::map<std::string, Part> made_;  // layers from factories, by name
  std::vector<std::unique_ptr<FunctionCell>> functions_;
  std::vector<Step> steps_;

  // State while the sequence is processed.
  std::optional<int> stage_;               // unset without boundaries
  std::optional<int> last_stage_;          // stage of the last name
  bool has_layer_ = false;                 // since the last boundary
  std::vector<const Execution*> waiting_;  // functions for the "front" of the next name
  std::string last_;                       // the last name
  std::string giver_;                      // the entry that made the current values
  int given_ = 1;                          // number of current values
};

std::unique_ptr<Cell> list_layers(const std::shared_ptr<torch::nn::Module>& module, const ExecutionSequence& sequence,
                                  std::vector<CallableKind> kinds) {
  return std::make_unique<ListedLayers>(module, sequence, std::move(kinds));
}

std::unique_ptr<Cell> layer_list(const ExecutionSequence& sequence) {
  return std::make_unique<ListedLayers>(nullptr, sequence, std::vector<CallableKind>{});
}

}  // namespace penstock
