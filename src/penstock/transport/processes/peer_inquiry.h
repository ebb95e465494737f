// What this rank knows of the others, and the questions by which it finds that out. Torch-free.
//
// An inquiry follows the chain of waits, so that a wait knows all ranks on which it depends:
//
//   rank 1, which waits for rank 0:   question 7 to rank 0
//                                     answer 7: at 0RECV_B3, waits for rank 2
//                                     question 7 to rank 2
//                                     answer 7: at 2B3
//
// Each rank is asked once. An answer to an older inquiry is news of that rank and asks no other one.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/transport/processes/wire_buffer.h"
#include "penstock/transport/progress.h"

namespace penstock::processes {

/// The side of one rank.
class PeerInquiry {
 public:
  /// Sends a buffer of a kind of control_messages.h.
  using Send = std::function<void(WorldRank to, int kind, WireBuffer buffer)>;

  /// Of `rank` among `size`, whose own position is in `progress`.
  PeerInquiry(WorldRank rank, int size, const transport::Progress& progress, Send send);

  // Any thread.
  /// The latest answer of a rank; none where there is none yet. This rank's own position is always known.
  std::optional<transport::PeerStatus> status(WorldRank rank) const;
  transport::Contact contact(WorldRank rank) const;
  /// Records that a message of `peer` has come: with `tag`, or a question where that is null.
  void heard_of(WorldRank peer, const Tag* tag);
  /// Records that the process of `peer` has ended.
  void has_ended(WorldRank peer);

  // One thread at a time.
  /// Begins an inquiry with a question to `first`.
  void begin(WorldRank first);
  /// Answers a question of `from`.
  void answer(WorldRank from, const WireBuffer& question);
  /// Records an answer of `from`, and asks the rank that it waits for.
  void take_answer(WorldRank from, const WireBuffer& answer);

 private:
  void ask(WorldRank peer);

  const WorldRank rank_;
  const transport::Progress& progress_;
  const Send send_;

  mutable std::mutex mutex_;
  std::vector<std::optional<transport::PeerStatus>> statuses_;  // guarded by mutex_; by rank
  std::vector<transport::Contact> contacts_;                    // likewise

  std::uint64_t inquiry_ = 0;     // the number that all questions of an inquiry carry
  std::vector<WorldRank> asked_;  // in this inquiry
};

}  // namespace penstock::processes
