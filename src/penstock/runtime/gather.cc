#include "penstock/runtime/gather.h"

#include <cstring>
#include <sstream>
#include <type_traits>

#include "penstock/runtime/host_clock.h"
#include "penstock/transport/text_message.h"

namespace penstock {
namespace {

static_assert(std::is_trivially_copyable_v<Span>, "spans travel as bytes between processes of one build");

struct StepHeader {
  std::uint64_t step;
  std::int64_t begin_ns, end_ns;
  std::uint64_t spans;
};

template <class T>
void append(std::string& bytes, const T* values, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

std::string pack(const std::vector<RankStep>& steps) {
  std::string bytes;
  for (const RankStep& step : steps) {
    const StepHeader header{step.step, step.begin_ns, step.end_ns, step.spans.size()};
    append(bytes, &header, 1);
    append(bytes, step.spans.data(), step.spans.size());
  }
  return bytes;
}

std::vector<RankStep> unpack(const std::string& bytes) {
  std::vector<RankStep> steps;
  for (std::size_t at = 0; at < bytes.size();) {
    StepHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    at += sizeof(header);
    RankStep& step = steps.emplace_back(RankStep{header.step, header.begin_ns, header.end_ns, {}});
    step.spans.resize(header.spans);
    std::memcpy(static_cast<void*>(step.spans.data()), bytes.data() + at, header.spans * sizeof(Span));
    at += header.spans * sizeof(Span);
  }
  return steps;
}

torch::Tensor copy_on_cpu(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

Tag tag_of(const GatherTag& tag) { return {tag.pipeline, Traffic::control, tag.round, 2, 0, 0}; }

}  // namespace

std::vector<std::vector<RankStep>> gather_steps(const Member& member, const GatherTag& tag,
                                                const std::vector<RankStep>& own) {
  Transport& endpoint = *member.endpoint;
  if (member.rank != WorldRank(0)) {
    if (!endpoint.shares_host(WorldRank(0))) measure_clock_offset(member, tag, member.rank);
    endpoint.send(WorldRank(0), tag_of(tag), text_message(pack(own)));
    return {};
  }
  std::vector<std::vector<RankStep>> all{own};
  for (int r = 1; r < member.world_size(); ++r) {
    const WorldRank rank(r);
    const std::int64_t offset = endpoint.shares_host(rank) ? 0 : measure_clock_offset(member, tag, rank);
    all.push_back(unpack(text_of(endpoint.receive(rank, tag_of(tag), "the trace"))));
    to_own_clock(offset, all.back());
  }
  return all;
}

std::map<std::string, torch::Tensor> gather_tensors(const Member& member, const GatherTag& tag,
                                                    const std::vector<std::pair<std::string, torch::Tensor>>& own) {
  const torch::NoGradGuard no_grad;
  Transport& endpoint = *member.endpoint;
  std::map<std::string, torch::Tensor> all;
  if (member.rank != WorldRank(0)) {
    // The names first, a line each, then the tensors in their order.
    std::string names;
    Message message;
    for (const auto& [name, tensor] : own) {
      names += name + "\n";
      message.parcels.push_back({copy_on_cpu(tensor), false});
    }
    message.parcels.insert(message.parcels.begin(), text_message(names).parcels.front());
    endpoint.send(WorldRank(0), tag_of(tag), std::move(message));
    return all;
  }
  for (const auto& [name, tensor] : own) all[name] = copy_on_cpu(tensor);
  for (int r = 1; r < member.world_size(); ++r) {
    const Message message = endpoint.receive(WorldRank(r), tag_of(tag), "the parameters");
    std::istringstream names(text_of(message));
    std::size_t next = 1;
    for (std::string name; std::getline(names, name);) all[name] = message.parcels[next++].tensor.clone();
  }
  return all;
}

}  // namespace penstock
