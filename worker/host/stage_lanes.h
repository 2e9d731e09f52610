#pragma once

// The lanes of a stage's host: one computes, one codes boundary tensors beside it. A host without a
// codec lane codes on the compute lane, between its tasks.

#include <cstdint>
#include <memory>
#include <utility>

#include "proto/base/processor_time.h"
#include "proto/transport/link/event_loop.h"
#include "worker/lane.h"
#include "worker/out_of_memory.h"

namespace runnel {

// Call all methods on the loop's thread. Work runs on a lane, what is done with its result on the
// loop, as long as the host has not let go. Destroyed before anything that work uses: the
// destructor waits for the task under way.
class StageLanes {
 public:
  // codes_apart: with a codec lane. `loop` outlives the lanes.
  StageLanes(EventLoop* loop, const MakeLaneFn& make, bool codes_apart);
  ~StageLanes();
  StageLanes(const StageLanes&) = delete;
  StageLanes& operator=(const StageLanes&) = delete;

  // Completions on their way are dropped; no work may come any more.
  void Detach();
  // Some compute work is under way.
  bool computing() const { return computing_; }

  // work() on the compute lane, a StatusOr, then done(its result, TaskTime).
  template <typename Work, typename Done>
  void Compute(Work work, Done done) {
    computing_ = true;
    compute_->Post(
        [this, work = std::move(work), done = std::move(done), alive = alive_]() mutable {
          TaskTime time;
          time.begin_ns = loop_->clock().NowNanos();
          const int64_t processor_begin_ns = ThreadProcessorNs();
          auto result = WithinMemory("it computed", work);
          time.processor_ns = ThreadProcessorNs() - processor_begin_ns;
          time.end_ns = loop_->clock().NowNanos();
          loop_->Post(
              [this, alive, result = std::move(result), done = std::move(done), time]() mutable {
                if (!*alive) return;
                computing_ = false;
                done(std::move(result), time);
              });
        });
  }

  // work() where tensors are coded, then done(its result, its nanoseconds by the wall clock).
  template <typename Work, typename Done>
  void Code(Work work, Done done) {
    Lane& lane = codec_ != nullptr ? *codec_ : *compute_;
    lane.Post([this, work = std::move(work), done = std::move(done), alive = alive_]() mutable {
      const int64_t begin_ns = loop_->clock().NowNanos();
      auto result = work();
      const int64_t took_ns = loop_->clock().NowNanos() - begin_ns;
      loop_->Post([alive, result = std::move(result), done = std::move(done), took_ns]() mutable {
        if (*alive) done(std::move(result), took_ns);
      });
    });
  }

 private:
  EventLoop* const loop_;
  bool computing_ = false;
  std::shared_ptr<bool> alive_;  // false once the host is gone: completions on their way check it
  std::unique_ptr<Lane> compute_;
  std::unique_ptr<Lane> codec_;  // null: the compute lane codes too
};

}  // namespace runnel
