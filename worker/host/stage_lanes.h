#pragma once

// The lanes of a stage's host: one computes, one codes boundary tensors beside it. A host without a
// codec lane codes on the compute lane, between its tasks.

#include <cstdint>
#include <memory>
#include <utility>

#include "proto/base/host/processor_time.h"
#include "proto/transport/link/event_loop.h"
#include "worker/host/span_log.h"
#include "worker/lane.h"
#include "worker/out_of_memory.h"

namespace runnel {

// Call all methods on the loop's thread. Work runs on a lane, what is done with its result on the
// loop, as long as the host has not let go. Destroyed before anything that work uses: the
// destructor waits for the task under way.
class StageLanes {
 public:
  // codes_apart: with a codec lane. `loop` and `spans`, which keeps what the lanes do, outlive the
  // lanes; spans null: nobody wants to know.
  StageLanes(EventLoop* loop, SpanLog* spans, const MakeLaneFn& make, bool codes_apart);
  ~StageLanes();
  StageLanes(const StageLanes&) = delete;
  StageLanes& operator=(const StageLanes&) = delete;

  // Completions on their way are dropped; no work may come any more.
  void Detach();
  // Some compute work is under way.
  bool computing() const { return computing_; }

  // What a task is for.
  struct Purpose {
    SpanKind kind;
    Sequence micro_batch = Sequence(0);
  };

  // work() on the compute lane, a StatusOr, then done(its result, TaskTime).
  template <typename Work, typename Done>
  void Compute(Purpose purpose, Work work, Done done) {
    computing_ = true;
    compute_->Post(
        [this, purpose, work = std::move(work), done = std::move(done), alive = alive_]() mutable {
          TaskTime time;
          time.begin_ns = loop_->clock().NowNanos();
          const int64_t processor_begin_ns = ThreadProcessorNs();
          auto result = WithinMemory("it computed", work);
          time.processor_ns = ThreadProcessorNs() - processor_begin_ns;
          time.end_ns = loop_->clock().NowNanos();
          loop_->Post([this, alive, purpose, result = std::move(result), done = std::move(done),
                       time]() mutable {
            if (!*alive) return;
            computing_ = false;
            Keep(purpose, time.begin_ns, time.end_ns);
            done(std::move(result), time);
          });
        });
  }

  // work() where tensors are coded, then done(its result, its nanoseconds by the wall clock).
  template <typename Work, typename Done>
  void Code(Purpose purpose, Work work, Done done) {
    Lane& lane = codec_ != nullptr ? *codec_ : *compute_;
    lane.Post(
        [this, purpose, work = std::move(work), done = std::move(done), alive = alive_]() mutable {
          const int64_t begin_ns = loop_->clock().NowNanos();
          auto result = work();
          const int64_t end_ns = loop_->clock().NowNanos();
          loop_->Post([this, alive, purpose, result = std::move(result), done = std::move(done),
                       begin_ns, end_ns]() mutable {
            if (!*alive) return;
            Keep(purpose, begin_ns, end_ns);
            done(std::move(result), end_ns - begin_ns);
          });
        });
  }

 private:
  void Keep(const Purpose& purpose, int64_t begin_ns, int64_t end_ns) {
    if (spans_ != nullptr)
      spans_->Add({purpose.kind, purpose.micro_batch.value(), begin_ns, end_ns - begin_ns});
  }

  EventLoop* const loop_;
  SpanLog* const spans_;
  bool computing_ = false;
  std::shared_ptr<bool> alive_;  // false once the host is gone: completions on their way check it
  std::unique_ptr<Lane> compute_;
  std::unique_ptr<Lane> codec_;  // null: the compute lane codes too
};

}  // namespace runnel
