#include "penstock/checkpoint/background_writer.h"

#include <utility>

#include "penstock/base/thread_name.h"

namespace penstock {

BackgroundWriter::~BackgroundWriter() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::start(std::function<void()> work) {
  wait();
  has_ended_ = false;
  thread_ = std::thread([this, work = std::move(work)] {
    name_this_thread("checkpoint");
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
    has_ended_ = true;
  });
}

void BackgroundWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void BackgroundWriter::check() {
  if (has_ended_) wait();
}

}  // namespace penstock
