#include "penstock/runtime/invalid_loss.h"

#include <cmath>

#include "penstock/base/error.h"

namespace penstock {
namespace {

using Kind = InvalidValue::Kind;

std::string name_of(const InvalidValue& value) {
  const std::string on_stage = say("'", value.name, "' (stage ", value.stage, ")");
  switch (value.kind) {
    case Kind::input: return say("input ", value.name, " of the batch");
    case Kind::target: return say("target ", value.name, " of the batch");
    case Kind::parameter: return "parameter " + on_stage;
    case Kind::layer: return "the output of layer " + on_stage;
    case Kind::function: return "the output of function " + on_stage;
    case Kind::loss: return say("the loss ('", value.name, "')");
    case Kind::none: break;
  }
  return "no value";
}

std::string cause_of(const InvalidStep& invalid) {
  const InvalidValue& first = invalid.first;
  const std::string name = name_of(first);
  if (invalid.first_nan)
    return say(name, " is infinite, and ", name_of(*invalid.first_nan), " is the first that is not a number");
  switch (first.kind) {
    case Kind::input:
    case Kind::target: return name + " is not finite";
    case Kind::parameter:
      if (!invalid.last_update) return name + " is not finite, and no update has changed it";
      return say(name, " is not finite since the update of training step ", *invalid.last_update, " at the latest");
    case Kind::layer:
    case Kind::function: return name + " is not finite, though its inputs and parameters are";
    case Kind::loss: return say("the outputs of the network are finite, ", name, " alone is not");
    case Kind::none: break;
  }
  if (!invalid.search_failure.empty())
    return say("no layer can be named, because a second forward pass failed (", invalid.search_failure, ")");
  return "in a second forward pass of the same batch it was finite, so that no layer can be named: a layer or the loss "
         "has a state other than its parameters and buffers";
}

}  // namespace

std::string text_of(const InvalidStep& invalid) {
  const std::string of_replica = invalid.replicas > 1 ? say(" of replica ", invalid.replica) : "";
  return say("the loss of training step ", invalid.step, " is ", text_of_loss(invalid.loss), " in micro-batch ",
             invalid.micro_batch, of_replica, " (stage ", invalid.stage, "): ", cause_of(invalid));
}

bool is_invalid_loss(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InvalidLoss&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::string text_of_loss(double loss) { return std::isnan(loss) ? "nan" : say(loss); }

}  // namespace penstock
