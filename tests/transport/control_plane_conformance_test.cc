// The guarantees of control_plane.h, for every transport. What a rank that dies or stops does to the others,
// process_faults_test.py shows.
#include <cstdlib>
#include <exception>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/transport/progress.h"
#include "penstock/transport/records.h"
#include "tests/transport/world_under_test.h"

namespace penstock::test::control_plane_conformance_test {
using namespace transport;
namespace {

class ControlPlaneConformance : public ::testing::TestWithParam<WorldUnderTest> {
 protected:
  static Tag value_of_step(std::uint64_t step) {
    return {.pipeline = pipeline_under_test, .traffic = Traffic::forward, .step = step};
  }
  static WorldRank last_of(const ControlPlane& ranks) { return WorldRank(ranks.size() - 1); }
  /// The last rank sends a message to every rank, itself included.
  void send_to_all(Transport& own, const Tag& tag) const {
    if (own.rank() != last_of(own)) return;
    for (WorldRank to(0); to.value() < own.size(); to = to.next())
      own.send(to, tag, {{{torch::full({2}, 7, GetParam().device(own.rank().value())), false}}});
  }
  /// The last rank returns when the world is open on all ranks, and they are about to wait.
  static void let_all_begin(Transport& own) {
    const Tag ready{.pipeline = pipeline_under_test, .traffic = Traffic::control};
    own.send(last_of(own), ready, {});
    if (own.rank() != last_of(own)) return;
    for (WorldRank from(0); from.value() < own.size(); from = from.next()) own.receive(from, ready, "all to begin");
  }
  static void expect_arrival(Transport& own, const Tag& tag) {
    const Message got = own.receive(last_of(own), tag, "1RECV_F0");
    ASSERT_EQ(got.payloads.size(), 1U);
    EXPECT_TRUE(got.payloads[0].tensor.cpu().equal(torch::full({2}, 7)));
  }
  /// The text of the exception of type Error that ends the wait for a message of the last rank.
  template <class Error>
  static std::string end_of_wait(Transport& own, const Tag& tag) {
    try {
      own.receive(last_of(own), tag, "1RECV_F0");
      ADD_FAILURE() << "the message has arrived";
    } catch (const Error& error) {
      return error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "an exception of another type: " << error.what();
    }
    return "";
  }
};

TEST_P(ControlPlaneConformance, ranks_have_different_numbers_and_one_name) {
  const Tag tag{.pipeline = pipeline_under_test, .traffic = Traffic::control, .step = 1};
  GetParam().each_rank_of_new_world([&](Transport& own) {
    const auto told = [](const ControlPlane& rank) { return say("rank ", rank.rank().value(), " of ", rank.name()); };
    for (WorldRank to(0); to.value() < own.size(); to = to.next()) own.send(to, tag, message_of(told(own)));
    for (WorldRank from(0); from.value() < own.size(); from = from.next()) {
      EXPECT_EQ(text_in(own.receive(from, tag, "a name")), say("rank ", from.value(), " of ", own.name()));
      EXPECT_TRUE(own.shares_host(from));  // tests run on one
      EXPECT_FALSE(own.is_lost(from));
    }
  });
}

// For scripts that are written for torchrun. Other transports find these variables, or do without.
TEST_P(ControlPlaneConformance, processes_that_mpi_joins_have_the_variables_of_torchrun) {
  GetParam().each_rank([](Transport& own) {
    if (own.name() != "mpi") return;
    const auto value = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
    const bool is_set = own.size() > 1;
    EXPECT_EQ(value("RANK"), is_set ? std::to_string(own.rank().value()) : "");
    EXPECT_EQ(value("WORLD_SIZE"), is_set ? std::to_string(own.size()) : "");
    EXPECT_EQ(value("LOCAL_RANK"), is_set ? value("OMPI_COMM_WORLD_LOCAL_RANK") : "");
    EXPECT_EQ(joining::launched_as().size, own.size());
  });
}

TEST_P(ControlPlaneConformance, a_rank_reads_the_position_that_it_has_recorded) {
  GetParam().each_rank_of_new_world([](Transport& own) {
    EXPECT_EQ(place_of(own.status().position), "at start");
    own.report_progress({"0F5", 12});
    const PeerStatus first = own.status();
    EXPECT_EQ(place_of(first.position), "at 0F5 in step 12");
    own.report_progress({"1B3", 13});
    EXPECT_EQ(place_of(own.status().position), "at 1B3 in step 13");
    EXPECT_GE(own.status().since_ns, first.since_ns);
    EXPECT_EQ(own.status().waits_for, std::nullopt);
  });
}

TEST_P(ControlPlaneConformance, an_abort_ends_every_wait_with_the_first_reason) {
  GetParam().each_rank_of_new_world([](Transport& own) {
    let_all_begin(own);
    if (own.rank() == last_of(own)) {
      EXPECT_EQ(own.aborted(), std::nullopt);
      own.abort("the disk is full");
      own.abort("too late");
    }
    EXPECT_EQ(end_of_wait<WorldAborted>(own, value_of_step(0)),
              say("rank ", own.rank().value(), " gave up waiting for 1RECV_F0: the disk is full"));
    own.abort("too late");
    EXPECT_EQ(own.aborted(), "the disk is full");
    EXPECT_THROW(own.send(own.rank(), value_of_step(1), {}), WorldAborted);
    own.cancel({pipeline_under_test, 0}, "no step is left");
    EXPECT_EQ(end_of_wait<WorldAborted>(own, value_of_step(0)),
              say("rank ", own.rank().value(), " gave up waiting for 1RECV_F0: the disk is full"));
  });
}

TEST_P(ControlPlaneConformance, an_abort_ends_the_waits_of_background_work_too) {
  const Tag saved{.pipeline = pipeline_under_test, .traffic = Traffic::background, .step = 3};
  GetParam().each_rank_of_new_world([&](Transport& own) {
    let_all_begin(own);
    if (own.rank() == last_of(own)) own.abort("the disk is full");
    EXPECT_NE(end_of_wait<WorldAborted>(own, saved).find("the disk is full"), std::string::npos);
  });
}

TEST_P(ControlPlaneConformance, a_cancelled_step_ends_its_waits_and_no_others) {
  GetParam().each_rank_of_new_world([this](Transport& own) {
    const bool aborts = !own.can_cancel();
    let_all_begin(own);
    if (own.rank() == last_of(own)) own.cancel({pipeline_under_test, 4}, "the input is too wide");
    if (aborts) {
      EXPECT_NE(end_of_wait<WorldAborted>(own, value_of_step(4)).find("the input is too wide"), std::string::npos);
      EXPECT_EQ(own.aborted(), "the input is too wide");
      return;
    }
    send_to_all(own, value_of_step(4));  // dropped
    send_to_all(own, value_of_step(5));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(end_of_wait<StepCancelled>(own, value_of_step(4)), "the input is too wide");
    expect_arrival(own, value_of_step(5));
    EXPECT_EQ(own.aborted(), std::nullopt);
  });
}

TEST_P(ControlPlaneConformance, cancelled_background_work_ends_its_waits_and_no_others) {
  const auto saved = [](std::uint64_t save) {
    return Tag{.pipeline = pipeline_under_test, .traffic = Traffic::background, .step = save};
  };
  GetParam().each_rank_of_new_world([&](Transport& own) {
    if (own.rank() == last_of(own)) own.cancel({pipeline_under_test, 3, WorkKind::background}, "the disk is full");
    send_to_all(own, saved(4));
    send_to_all(own, value_of_step(3));
    EXPECT_EQ(end_of_wait<StepCancelled>(own, saved(3)), "the disk is full");
    expect_arrival(own, saved(4));
    expect_arrival(own, value_of_step(3));
    EXPECT_EQ(own.aborted(), std::nullopt);
  });
}

TEST_P(ControlPlaneConformance, a_cancelled_pipeline_ends_its_waits_and_not_those_of_others) {
  Tag of_another = value_of_step(0);
  of_another.pipeline = pipeline_under_test + 1;
  GetParam().each_rank_of_new_world([&](Transport& own) {
    if (own.rank() == last_of(own)) own.cancel({pipeline_under_test, 0, WorkKind::all}, "rank 1 has left");
    if (!own.can_cancel()) {
      EXPECT_NE(end_of_wait<WorldAborted>(own, value_of_step(0)).find("rank 1 has left"), std::string::npos);
      return;
    }
    send_to_all(own, of_another);
    for (std::uint64_t step = 0; step < 2; ++step)
      EXPECT_EQ(end_of_wait<PipelineCancelled>(own, value_of_step(step)), "rank 1 has left");
    expect_arrival(own, of_another);
  });
}

TEST_P(ControlPlaneConformance, a_world_that_has_failed_leaves_others_alone) {
  const Tag tag{.pipeline = pipeline_under_test, .traffic = Traffic::forward, .step = 1'000'000};
  GetParam().each_rank([&](Transport& own) {
    send_to_all(own, tag);
    expect_arrival(own, tag);
  });
  GetParam().each_rank_of_new_world([&](Transport& own) {
    let_all_begin(own);
    if (own.rank() == last_of(own)) own.abort("only this one");
    end_of_wait<WorldAborted>(own, tag);
  });
  Tag next = tag;
  ++next.step;
  GetParam().each_rank([&](Transport& own) {
    send_to_all(own, next);
    expect_arrival(own, next);
    EXPECT_EQ(own.aborted(), std::nullopt);
  });
}

INSTANTIATE_TEST_SUITE_P(World, ControlPlaneConformance, ::testing::ValuesIn(worlds_under_test()),
                         [](const auto& world) { return world.param.name; });

}  // namespace
}  // namespace penstock::test::control_plane_conformance_test
