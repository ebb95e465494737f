#include "penstock/transport/processes/wire.h"

#include <cstring>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"

namespace penstock::wire_test {
using namespace processes;
namespace {

const Tag some_tag{1, Traffic::backward, 1ULL << 40, 2, -3, 4};

TEST(Wire, keeps_the_tag_and_the_time_of_sending) {
  Message message;
  message.sent_ns = 12345;
  const auto [tag, decoded] = decode(encode(some_tag, message));
  EXPECT_EQ(tag, some_tag);
  EXPECT_EQ(decoded.sent_ns, 12345);
}

TEST(Wire, tensors_share_the_buffer_and_keep_it_alive) {
  WireBuffer buffer = encode(some_tag, {{{torch::rand({3}), false}, {torch::rand({5, 5}), true}}});
  const std::byte* begin = buffer.data();
  const std::byte* end = begin + buffer.size();
  torch::Tensor second;
  {
    const auto [tag, decoded] = decode(std::move(buffer));
    for (const Payload& payload : decoded.payloads) {
      const auto* data = static_cast<const std::byte*>(payload.tensor.data_ptr());
      EXPECT_TRUE(begin < data && data < end);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % WireBuffer::unit, 0U);
    }
    second = decoded.payloads[1].tensor;
  }
  EXPECT_EQ(second.storage().nbytes(), 100U);
  second.fill_(1.0);  // valgrind and ASAN would object if the buffer were gone
  EXPECT_EQ(second.sum().item<float>(), 25.0F);
}

TEST(Wire, rejects_buffers_of_another_build) {
  WireBuffer foreign = encode(some_tag, {});
  foreign.data()[0] = std::byte{0};
  EXPECT_THROW(decode(std::move(foreign)), TransportError);

  const WireBuffer whole = encode(some_tag, {{{torch::rand({100}), false}}});
  WireBuffer half(whole.size() / 2);
  std::memcpy(half.data(), whole.data(), half.size());
  EXPECT_THROW(decode(std::move(half)), TransportError);

  // A larger buffer may have been posted for it.
  WireBuffer longer(whole.size() + 64);
  std::memcpy(longer.data(), whole.data(), whole.size());
  EXPECT_EQ(decode(std::move(longer)).second.payloads.size(), 1U);
}

// The envelope of one unit, then only the numbers.
TEST(Wire, carries_no_headers_where_the_shape_was_declared) {
  KnownShapes known;
  known.declare(some_tag.pipeline, {2, 8, 3, 4});
  const Encoding with{}, without{.shape = known.of(some_tag)};
  for (const bool channels_last : {false, true})
    for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kInt64}) {
      torch::Tensor value = torch::arange(2 * 8 * 3 * 4).view({2, 8, 3, 4}).to(type);
      if (channels_last) value = value.contiguous(at::MemoryFormat::ChannelsLast);
      const Message message{{{value, true}, {value + 1, true}}, 7, 0};
      WireBuffer shorter = encode(some_tag, message, without);
      EXPECT_EQ(shorter.size(), WireBuffer::unit + 2 * value.nbytes());
      EXPECT_EQ(encode(some_tag, message, with).size(), shorter.size() + 192);
      const auto [tag, decoded] = decode(std::move(shorter), {.shapes = &known});
      EXPECT_EQ(tag, some_tag);
      EXPECT_EQ(decoded.sent_ns, 7);
      ASSERT_EQ(decoded.payloads.size(), 2U);
      const auto& [got, requires_grad, is_kept] = decoded.payloads[1];
      EXPECT_TRUE(requires_grad);
      EXPECT_EQ(got.scalar_type(), type);
      EXPECT_EQ(got.strides(), value.strides());
      EXPECT_TRUE(torch::equal(got, value + 1));
    }
}

TEST(Wire, carries_headers_where_the_declared_shape_does_not_suffice) {
  KnownShapes known;
  known.declare(some_tag.pipeline, {2, 3});
  const Encoding encoding{.shape = known.of(some_tag)};
  const torch::Tensor value = torch::rand({2, 3});
  const Message mixed{{{value, true}, {value, false}}}, absent{{{value, true}, {{}, false}}},
      turned{{{torch::rand({3, 2}).t(), true}}};
  for (const Message& message : {mixed, absent, turned}) {
    EXPECT_EQ(encode(some_tag, message, encoding).size(), encode(some_tag, message).size());
    const auto [tag, decoded] = decode(encode(some_tag, message, encoding), {.shapes = &known});
    for (std::size_t i = 0; i < message.payloads.size(); ++i) {
      EXPECT_EQ(decoded.payloads[i].requires_grad, message.payloads[i].requires_grad);
      EXPECT_EQ(decoded.payloads[i].tensor.defined(), message.payloads[i].tensor.defined());
    }
    EXPECT_EQ(decoded.payloads[0].tensor.strides(), message.payloads[0].tensor.strides());
  }
  Tag other = some_tag;
  other.traffic = Traffic::reduce;
  EXPECT_FALSE(known.of(other));
  other = some_tag;
  ++other.pipeline;
  EXPECT_FALSE(known.of(other));
  EXPECT_THROW(decode(encode(some_tag, {{{value, true}}}, encoding)), TransportError);
}

TEST(Wire, describes_each_format_once) {
  SentFormats sent;
  ReceivedFormats received;
  const torch::Tensor value = torch::rand({4, 3});
  const Message large{{{torch::rand({10, 16}), true}, {{}, false}}}, whole{{{value, true}, {{}, false}}},
      part{{{value.slice(0, 0, 2), true}, {{}, false}}}, turned{{{torch::rand({3, 4}).t(), true}, {{}, false}}},
      constant{{{value, false}, {{}, false}}};
  int described = 0;
  for (const Message* message :
       {&large, &whole, &whole, &part, &whole, &turned, &part, &constant, &turned, &constant}) {
    WireBuffer buffer = encode(some_tag, *message, {.formats = &sent});
    EXPECT_EQ(buffer.size(), WireBuffer::unit + WireBuffer::padded(message->payloads[0].tensor.nbytes()));
    if (auto format = sent.take_new()) {
      ++described;
      received.add(format->number, format->format + "zeros, for example");
    }
    const auto [tag, decoded] = decode(std::move(buffer), {.formats = &received});
    EXPECT_EQ(tag, some_tag);
    ASSERT_EQ(decoded.payloads.size(), 2U);
    EXPECT_FALSE(decoded.payloads[1].tensor.defined());
    const auto& [got, requires_grad, is_kept] = decoded.payloads[0];
    EXPECT_EQ(requires_grad, message->payloads[0].requires_grad);
    EXPECT_EQ(got.strides(), message->payloads[0].tensor.strides());
    EXPECT_TRUE(torch::equal(got, message->payloads[0].tensor));
  }
  EXPECT_EQ(described, 5);
  EXPECT_EQ(sent.descriptions(), 5U);
  EXPECT_THROW(decode(encode(some_tag, whole, {.formats = &sent})), TransportError);
  // Another format than that of the message: of more numbers, and of fewer.
  for (const std::int64_t rows : {40, 1}) {
    SentFormats elsewhere;
    encode(some_tag, {{{torch::rand({rows, 16}), true}, {{}, false}}}, {.formats = &elsewhere});
    ReceivedFormats other;
    other.add(0, elsewhere.take_new().value().format);
    EXPECT_THROW(decode(encode(some_tag, large, {.formats = &sent}), {.formats = &other}), TransportError) << rows;
  }
  const ReceivedFormats none;
  EXPECT_THROW(decode(encode(some_tag, whole, {.formats = &sent}), {.formats = &none}), TransportError);
}

TEST(Wire, messages_of_long_formats_describe_themselves) {
  SentFormats sent;
  const Message many{std::vector<Payload>(100, {torch::rand({2, 2}), true})};
  WireBuffer buffer = encode(some_tag, many, {.formats = &sent});
  EXPECT_FALSE(sent.take_new());
  EXPECT_EQ(decode(std::move(buffer)).second.payloads.size(), 100U);
}

RC_GTEST_PROP(Wire, DecodeUndoesEncodeForAnyDenseTensor, ()) {
  auto sizes = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 5));
  if (sizes.size() > 5) sizes.resize(5);
  std::vector<std::int64_t> order(sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[*rc::gen::inRange<std::size_t>(0, i)]);
  const torch::Tensor tensor = torch::rand(sizes).permute(order);
  SentFormats sent;
  ReceivedFormats received;
  for (SentFormats* formats : {static_cast<SentFormats*>(nullptr), &sent}) {
    WireBuffer buffer = encode(some_tag, {{{tensor, true}}}, {.formats = formats});
    if (const auto format = sent.take_new()) received.add(format->number, format->format);
    const auto [tag, decoded] = decode(std::move(buffer), {.formats = &received});
    const torch::Tensor& got = decoded.payloads.at(0).tensor;
    RC_ASSERT(got.sizes() == tensor.sizes());
    RC_ASSERT(got.strides() == tensor.strides());
    RC_ASSERT(got.equal(tensor));
  }
}

TEST(PrepareForSend, keeps_a_dense_tensors_storage_and_strides) {
  const torch::Tensor tensor = torch::rand({16, 4}).t();
  const torch::Tensor sent = prepare_for_send(tensor);
  EXPECT_EQ(sent.data_ptr(), tensor.data_ptr());
  EXPECT_EQ(sent.strides(), tensor.strides());
}

TEST(PrepareForSend, resolves_lazy_conjugation_and_negation) {
  const torch::Tensor z = torch::complex(torch::rand({4}), torch::rand({4}));
  const torch::Tensor sent = prepare_for_send(z.conj());
  EXPECT_FALSE(sent.is_conj());
  EXPECT_TRUE(sent.equal(z.conj()));
}

TEST(PrepareForSend, detaches_from_the_graph) {
  const torch::Tensor value = torch::rand({4}, torch::requires_grad()) * 2;
  const torch::Tensor sent = prepare_for_send(value);
  EXPECT_FALSE(sent.requires_grad());
  EXPECT_FALSE(sent.grad_fn());
}

TEST(PrepareForSend, returns_undefined_tensors_unchanged) { EXPECT_FALSE(prepare_for_send(torch::Tensor()).defined()); }

}  // namespace
}  // namespace penstock::wire_test
