// The messages of one step between the stages of a rank and all other stages: values forward, gradients backward.
//
//        take_values +---------+ put_values
//     RECV_F ------> | a stage | ------> SEND_F         Values for a stage of the same rank are there at once,
//     SEND_B <------ | of ours | <------ RECV_B         without SEND and RECV.
//      put_gradients +---------+ take_gradients
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include "penstock/model/stages.h"
#include "penstock/rank/executor.h"
#include "penstock/rank/stage_placement.h"
#include "penstock/schedule/instruction.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/transport.h"

namespace penstock {

/// Used on its rank's thread.
class BoundaryMessages {
 public:
  struct Setting {
    std::optional<std::vector<std::int64_t>> shape;  // of every boundary value, where one is declared
    c10::Device device;                              // of the rank
  };
  /// `placement` and `graph` must outlive it.
  BoundaryMessages(const StagePlacement& placement, const Graph& graph, Setting setting);

  /// To be called before a step; its number is part of the messages' tags.
  void begin_step(std::uint64_t step) { step_ = step; }
  /// Discards all messages of the step.
  void clear();

  /// Waits for the message of a RECV, and returns when it arrived. Its tensors are on the rank's device.
  Arrival receive(const Instruction& instruction);
  /// Executes a SEND.
  void send(const Instruction& instruction);

  /// Removes and returns the values that F of `stage` needs: one message per port of stage.receives.
  std::vector<Message> take_values(const StagePart& stage, MicroBatch micro_batch);
  /// Stores the values that F has computed: one message per port of stage.sends. Throws ScheduleError for a value that
  /// does not have the declared shape.
  void put_values(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages);
  /// Removes and returns the gradients that B or I of `stage` needs: one message per port of stage.sends, with
  /// undefined tensors for a link that carries no gradient.
  std::vector<Message> take_gradients(const StagePart& stage, MicroBatch micro_batch);
  /// Stores the gradients that B or I has computed: one message per port of stage.receives.
  void put_gradients(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages);

 private:
  /// A link of the graph: from the stage that computes its values to the stage that reads them.
  struct Link {
    StageId from;
    StageId to;
  };
  Tag tag_of(Traffic traffic, Link link, MicroBatch micro_batch) const;
  Tag tag_of(const Instruction& message) const;
  void put(const Tag& tag, StageId reader, Message message);
  Message take(const Tag& tag);
  void require_shape(const StagePart& stage, const Port& port, const Message& message) const;

  const StagePlacement& placement_;
  const Graph& graph_;
  const Setting setting_;
  DeviceReceiver from_host_;
  std::uint64_t step_ = 0;
  std::map<Tag, Message> inbox_;   // received, or from another stage of this rank
  std::map<Tag, Message> outbox_;  // computed, not sent yet
};

}  // namespace penstock
