#include "penstock/world/gather.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "penstock/transport/text_message.h"
#include "penstock/world/host_clock.h"

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

std::vector<std::vector<RankStep>> gather_steps(const RankContext& context, const GatherTag& tag,
                                                const std::vector<RankStep>& own) {
  Transport& endpoint = *context.endpoint;
  if (context.rank != WorldRank(0)) {
    if (!endpoint.shares_host(WorldRank(0))) measure_clock_offset(context, tag, context.rank);
    endpoint.send(WorldRank(0), tag_of(tag), text_message(pack(own)));
    return {};
  }
  std::vector<std::vector<RankStep>> all{own};
  for (int r = 1; r < context.world_size(); ++r) {
    const WorldRank rank(r);
    const std::int64_t offset = endpoint.shares_host(rank) ? 0 : measure_clock_offset(context, tag, rank);
    all.push_back(unpack(text_of(endpoint.receive(rank, tag_of(tag), "the trace"))));
    to_own_clock(offset, all.back());
  }
  return all;
}

// Rank 0 requests one tensor after the other, so that messages in flight and the transport's buffers never hold more
// than two of them.
std::map<std::string, torch::Tensor> gather_tensors(const RankContext& context, const GatherTag& tag,
                                                    const std::vector<std::pair<std::string, torch::Tensor>>& own) {
  const torch::NoGradGuard no_grad;
  Transport& endpoint = *context.endpoint;
  const auto numbered = [&](std::int32_t what, std::size_t number) {
    return Tag{tag.pipeline, Traffic::control, tag.round, what, 0, static_cast<std::int32_t>(number)};
  };
  constexpr std::int32_t asked = 5, answered = 6;
  constexpr std::size_t ahead = 2;
  std::map<std::string, torch::Tensor> all;
  if (context.rank != WorldRank(0)) {
    std::vector<std::int64_t> lengths;
    std::string names;
    for (const auto& [name, tensor] : own) {
      names += name;
      lengths.push_back(static_cast<std::int64_t>(name.size()));
    }
    Message index = text_message(names);
    index.payloads.push_back({torch::tensor(lengths, torch::kInt64), false});
    endpoint.send(WorldRank(0), tag_of(tag), std::move(index));
    for (std::size_t i = 0; i < own.size(); ++i) {
      endpoint.receive(WorldRank(0), numbered(asked, i), "whether rank 0 takes the next parameter");
      endpoint.send(WorldRank(0), numbered(answered, i), {{{copy_on_cpu(own[i].second), false}}, 0, 0});
    }
    return all;
  }
  for (const auto& [name, tensor] : own) all[name] = copy_on_cpu(tensor);
  for (int r = 1; r < context.world_size(); ++r) {
    const WorldRank from(r);
    const Message index = endpoint.receive(from, tag_of(tag), "the names of the parameters");
    const std::string names = text_of(index);
    const torch::Tensor& lengths = index.payloads[1].tensor;
    const auto count = static_cast<std::size_t>(lengths.numel());
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) endpoint.send(from, numbered(asked, i), {});
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto length = static_cast<std::size_t>(lengths[static_cast<std::int64_t>(i)].item<std::int64_t>());
      const Message message = endpoint.receive(from, numbered(answered, i), "the parameters");
      all[names.substr(at, length)] = message.payloads.front().tensor.clone();
      at += length;
      if (i + ahead < count) endpoint.send(from, numbered(asked, i + ahead), {});
    }
  }
  return all;
}

}  // namespace penstock
